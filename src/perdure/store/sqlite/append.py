"""Group commit of a worker's writes: the hottest path.

L1. The worker's row, and each run's worker and epoch, are checked in the transaction that writes.
J1. Records are only added, each run's next number first.

A verdict is found per run, then everything that passed is written. A write whose COMMIT answered with an error is
recognised when it comes again. Things that don't work: one statement that checks and inserts (SQLite then builds a
temporary table: 50 µs).
"""

from __future__ import annotations

from typing import Any, Final, cast

from perdure.base.status import ENDED, Reason
from perdure.errors import LeaseLost
from perdure.store.contract import Appended, RunWrite, Verdict
from perdure.store.sqlite import journal
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.errors import REFUSED, Unbatched
from perdure.store.sqlite.known import Fact, Known
from perdure.store.sqlite.rows import encode, end_sum, error_bytes

_ALL: Final = -1

# The control mark, and whether the worker still lives.
FENCE: Final = (
    "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'controls'), EXISTS (SELECT 1 FROM workers WHERE num = ?)"
)
# What a run's verdict depends on.
_CHECK: Final = """
SELECT num, worker, epoch, coalesce((SELECT max(id) FROM controls WHERE run = num), 0) FROM runs WHERE num = ?"""
# A run's new state.
_CHANGE: Final = """
UPDATE runs SET status = ?2, reason = ?3, waiting_on = ?4, ready_at = ?5, result = ?6, error = ?7, end_sum = ?8,
  worker = iif(?9, NULL, worker),
  code = coalesce(?10, code), updated_at = ?11
WHERE num = ?1"""
# A run's progress.
_PROGRESS: Final = "UPDATE runs SET progress = ?2, updated_at = ?3 WHERE num = ?1"
# A step's heartbeat replaces the one before.
_PULSE: Final = """
INSERT INTO pulses (run, position, at, details) VALUES (?, ?, ?, ?)
ON CONFLICT (run, position) DO UPDATE SET at = excluded.at, details = excluded.details"""
# Requests that were acted on.
_CONSUME: Final = "DELETE FROM controls WHERE run = ? AND id <= ?"
_CONSUME_ALL: Final = "DELETE FROM controls WHERE run = ?"
# Is there a request that nobody acted on? A run that this code cannot replay can only be terminated by it.
_PENDING: Final = "SELECT 1 FROM controls WHERE run = ?1 AND (NOT ?2 OR kind = 'terminate') LIMIT 1"
_UNREPLAYABLE: Final = frozenset({Reason.DIVERGED, Reason.STORE})


def append(db: Db, known: Known, worker: int, writes: list[RunWrite], now: float) -> Appended:
    if not known.confirm(db, worker):
        known.mark = fence(db, worker)
        known.worker = worker
    if len(writes) == 1 and (fact := _fact(known, writes[0])) is not None and fact.pos:
        _write_next(db, known, fact, writes[0], now)
        return Appended([Verdict.DONE], known.mark)
    facts = [_fact(known, write) for write in writes]
    unknown = [(write.num,) for write, fact in zip(writes, facts, strict=True) if fact is None]
    rows = {row[0]: row for row in db.executemany(_CHECK, unknown)} if unknown else {}
    if len({write.num for write in writes}) < len(writes):
        return append_singly(db, known, worker, writes, now)  # the same run twice: the second write builds on the first
    verdicts: list[Verdict] = []
    passed: list[tuple[Fact, RunWrite, int]] = []
    for write, fact in zip(writes, facts, strict=True):
        if fact is not None:
            verdicts.append(Verdict.DONE)
            passed.append((fact, write, 0))
            continue
        verdict, stored = _judge(db, worker, write, rows.get(write.num))
        verdicts.append(verdict)
        if verdict is Verdict.DONE and stored != _ALL:
            passed.append((_learn(known, write, stored, rows[write.num]), write, stored))
    try:
        _write_all(db, known, passed, now)
    except REFUSED:
        raise Unbatched from None
    return Appended(verdicts, known.mark)


def _write_next(db: Db, known: Known, fact: Fact, write: RunWrite, now: float) -> None:
    """As `_write_all`, for one run whose row still grows: every step of a run that is alone."""
    try:
        if records := write.records:
            row, count = fact.row + journal.pack(write.num, fact.due, records), fact.count + len(records)
            db.execute(journal.GROW, (fact.pos, row, count, now))
            fact.grows(fact.pos, row, count)
            fact.due += len(records)
        if _has_more(write):
            _apply(db, known, write, now)
    except REFUSED:
        raise Unbatched from None


def _write_all(db: Db, known: Known, passed: list[tuple[Fact, RunWrite, int]], now: float) -> None:
    begun: list[tuple[int, int, int, int, int, float, bytes]] = []
    grown: list[tuple[int, bytes, int, float]] = []
    pos = 0
    for fact, write, stored in passed:
        records = write.records[stored:] if stored else write.records
        if not records:
            continue
        packed = journal.pack(write.num, fact.due, records)
        if fact.pos:
            row, count = fact.row + packed, fact.count + len(records)
            grown.append((fact.pos, row, count, now))
            fact.grows(fact.pos, row, count)
        else:
            pos = (pos or journal.last_pos(db)) + 1
            begun.append((pos, write.num, fact.due, len(records), write.epoch, now, packed))
            fact.grows(pos, packed, len(records))
        fact.due += len(records)
    if grown:
        db.executemany(journal.GROW, grown)
    if begun:
        db.executemany(journal.INSERT, begun)
    for _, write, _ in passed:
        if _has_more(write):
            _apply(db, known, write, now)


def append_singly(db: Db, known: Known, worker: int, writes: list[RunWrite], now: float) -> Appended:
    """The same run by run, so that what SQLite refuses stays the matter of one run (design 1.6.8)."""
    known.runs.clear()
    mark = fence(db, worker)
    verdicts: list[Verdict] = []
    for write in writes:
        row = db.execute(_CHECK, (write.num,)).get
        verdict, stored = _judge(db, worker, write, row)
        if verdict is Verdict.DONE and stored != _ALL:
            db.execute("SAVEPOINT one_run")
            try:
                fact = _learn(known, write, stored, row)
                _write_all(db, known, [(fact, write, stored)], now)
            except REFUSED:
                db.execute("ROLLBACK TO one_run")
                known.runs.pop(write.num, None)
                verdict = Verdict.CONFLICT
            db.execute("RELEASE one_run")
        verdicts.append(verdict)
    known.runs.clear()
    return Appended(verdicts, mark)


def fence(db: Db, worker: int) -> int:
    """The control mark; `LeaseLost` if the worker was buried (L1)."""
    mark, alive = db.execute(FENCE, (worker,)).get
    if not alive:
        raise LeaseLost
    return cast("int", mark)


def _fact(known: Known, write: RunWrite) -> Fact | None:
    """What is known of the run, if that suffices for this write."""
    fact = known.runs.get(write.num)
    return fact if fact is not None and fact.suffices(write) else None


def _learn(known: Known, write: RunWrite, stored: int, row: Any) -> Fact:
    """What is true of a run whose write has passed, but for its last `stored` records. Forgotten with all else if the transaction fails."""
    fact = known.runs[write.num] = Fact(write.epoch, write.seq + stored, row[3])
    return fact


def _judge(db: Db, worker: int, write: RunWrite, row: Any) -> tuple[Verdict, int]:
    """The verdict, and how many of the records are stored already; `_ALL` if nothing is left to write."""
    if row is None:
        return Verdict.FENCED, 0
    _, holder, epoch, newest_control = row
    held = holder == worker and epoch == write.epoch
    due = journal.last(db, write.num) + 1
    stored = 0
    if write.seq != due:
        known = journal.matching(db, write.num, write.epoch, write.seq, write.records) if 0 < write.seq < due else None
        if not known:
            return Verdict.CONFLICT if held else Verdict.FENCED, 0
        stored = known  # the COMMIT that carried them seemed to fail
        if stored == len(write.records):
            return Verdict.DONE, stored if held else _ALL
    if not held:
        return Verdict.FENCED, 0
    if write.unless_control is not None and newest_control > write.unless_control:
        return Verdict.CONTROL, 0
    return Verdict.DONE, stored


def _has_more(write: RunWrite) -> bool:
    """Is there more to it than records?"""
    return bool(write.change is not None or write.progress is not None or write.pulses or write.controls_seen)


def _apply(db: Db, known: Known, write: RunWrite, now: float) -> None:
    """Everything of a write that is not a record."""
    num, change = write.num, write.change
    if write.controls_seen:
        db.execute(_CONSUME, (num, write.controls_seen))
    if write.progress is not None:
        db.execute(_PROGRESS, (num, encode(write.progress), now))
    for pulse in write.pulses:
        db.execute(_PULSE, (num, pulse.position, now, pulse.details))
    if change is None:
        return
    ready_at = change.ready_at
    if change.release or change.status in ENDED:
        known.runs.pop(num, None)
    if change.status in ENDED:
        db.execute(_CONSUME_ALL, (num,))
    elif change.release and db.execute(_PENDING, (num, change.reason in _UNREPLAYABLE)).get is not None:
        ready_at = now  # a request that came while the worker let go must find a worker
    error = error_bytes(change.error)
    db.execute(
        _CHANGE,
        (
            num,
            change.status,
            change.reason,
            change.waiting_on,
            ready_at,
            change.result,
            error,
            end_sum(num, change.result, error),
            change.release,
            change.code,
            now,
        ),
    )
