"""Group commit of a worker's writes: the hottest path.

L1. The worker's row, and each run's worker and epoch, are checked in the transaction that writes.
J1. Records are only added, each run's next number first.

One SELECT per run finds its verdict, then everything that passed is inserted: no statement both checks and inserts, because SQLite then
builds a temporary table (50 µs measured). A write whose COMMIT answered with an error is recognised when it comes again.
"""

from __future__ import annotations

from typing import Any, Final, cast
from zlib import crc32

import apsw

from perdure.base.status import ENDED
from perdure.errors import LeaseLost
from perdure.store.contract import Appended, RunWrite, Verdict
from perdure.store.sqlite import journal
from perdure.store.sqlite.errors import REFUSED, Unbatched
from perdure.store.sqlite.rows import MASK, SPREAD, encode, end_sum, error_bytes

_ALL: Final = -1

# The control mark, and whether the worker still lives.
FENCE: Final = "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'controls'), EXISTS (SELECT 1 FROM workers WHERE num = ?)"
# What a run's verdict depends on.
_CHECK: Final = """
SELECT num, worker, epoch, (SELECT max(seq) FROM journal WHERE run = num), (SELECT max(id) FROM controls WHERE run = num)
FROM runs WHERE num = ?"""
# Both of them in one, for a batch of one run.
_CHECK_ONE: Final = """
SELECT num, worker, epoch, (SELECT max(seq) FROM journal WHERE run = num), (SELECT max(id) FROM controls WHERE run = num),
  (SELECT seq FROM sqlite_sequence WHERE name = 'controls'), EXISTS (SELECT 1 FROM workers WHERE num = ?2)
FROM runs WHERE num = ?1"""
# A run's new state.
_CHANGE: Final = """
UPDATE runs SET status = ?2, reason = ?3, waiting_on = ?4, ready_at = ?5, result = ?6, error = ?7, end_sum = ?8, worker = iif(?9, NULL, worker),
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
# Is there a request that nobody acted on?
_PENDING: Final = "SELECT 1 FROM controls WHERE run = ? LIMIT 1"


def append(db: apsw.Connection, worker: int, writes: list[RunWrite], now: float) -> Appended:
    if len(writes) == 1:
        return _append_one(db, worker, writes[0], now)
    mark = fence(db, worker)
    rows = {row[0]: row for row in cast(Any, db.executemany(_CHECK, [(write.num,) for write in writes]))}
    if len({write.num for write in writes}) < len(writes):
        return _append_singly(db, worker, writes, mark, now)  # the same run twice: the second write builds on the first
    verdicts: list[Verdict] = []
    inserts: list[tuple[int, int, int, int, bytes]] = []
    rest: list[RunWrite] = []
    for write in writes:
        verdict, stored = _judge(db, worker, write, rows.get(write.num))
        verdicts.append(verdict)
        if verdict is not Verdict.DONE or stored == _ALL:
            continue
        num, epoch, seq = write.num, write.epoch, write.seq + stored
        base = num * SPREAD
        for body in write.records[stored:] if stored else write.records:
            inserts.append((num, seq, epoch, crc32(body, (base + seq) & MASK), body))
            seq += 1
        if write.change is not None or write.progress is not None or write.pulses or write.controls_seen:
            rest.append(write)
    try:
        if inserts:
            db.executemany(journal.INSERT, inserts)
        for write in rest:
            _apply(db, write, now)
    except REFUSED:
        raise Unbatched from None
    return Appended(verdicts, mark)


def append_singly(db: apsw.Connection, worker: int, writes: list[RunWrite], now: float) -> Appended:
    """The same, but what SQLite refuses stays the matter of one run (design 1.6.8)."""
    return _append_singly(db, worker, writes, fence(db, worker), now)


def fence(db: apsw.Connection, worker: int) -> int:
    """The control mark; `LeaseLost` if the worker was buried (L1)."""
    mark, alive = cast(Any, db.execute(FENCE, (worker,)).get)
    if not alive:
        raise LeaseLost
    return cast(int, mark)


def _append_one(db: apsw.Connection, worker: int, write: RunWrite, now: float) -> Appended:
    row = cast(Any, db.execute(_CHECK_ONE, (write.num, worker)).get)
    if row is None:
        return Appended([Verdict.FENCED], fence(db, worker))
    if not row[6]:
        raise LeaseLost
    verdict, stored = _judge(db, worker, write, row)
    if verdict is Verdict.DONE and stored != _ALL:
        try:
            _write(db, write, stored, now)
        except REFUSED:
            raise Unbatched from None
    return Appended([verdict], row[5])


def _append_singly(db: apsw.Connection, worker: int, writes: list[RunWrite], mark: int, now: float) -> Appended:
    verdicts: list[Verdict] = []
    for write in writes:
        verdict, stored = _judge(db, worker, write, db.execute(_CHECK, (write.num,)).get)
        if verdict is Verdict.DONE and stored != _ALL:
            db.execute("SAVEPOINT one_run")
            try:
                _write(db, write, stored, now)
            except REFUSED:
                db.execute("ROLLBACK TO one_run")
                verdict = Verdict.CONFLICT
            db.execute("RELEASE one_run")
        verdicts.append(verdict)
    return Appended(verdicts, mark)


def _judge(db: apsw.Connection, worker: int, write: RunWrite, row: Any) -> tuple[Verdict, int]:
    """The verdict, and how many of the records are stored already; `_ALL` if nothing is left to write."""
    if row is None:
        return Verdict.FENCED, 0
    holder, epoch, last, newest_control = row[1:5]
    held = holder == worker and epoch == write.epoch
    due = (last or 0) + 1
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
    if write.unless_control is not None and newest_control is not None and newest_control > write.unless_control:
        return Verdict.CONTROL, 0
    return Verdict.DONE, stored


def _write(db: apsw.Connection, write: RunWrite, stored: int, now: float) -> None:
    journal.add(db, write.num, write.epoch, write.seq + stored, write.records[stored:] if stored else write.records)
    if write.change is not None or write.progress is not None or write.pulses or write.controls_seen:
        _apply(db, write, now)


def _apply(db: apsw.Connection, write: RunWrite, now: float) -> None:
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
    if change.status in ENDED:
        db.execute(_CONSUME_ALL, (num,))
    elif change.release and db.execute(_PENDING, (num,)).get is not None:
        ready_at = now  # a request that came while the worker let go must find a worker
    error = error_bytes(change.error)
    db.execute(
        _CHANGE,
        (num, change.status, change.reason, change.waiting_on, ready_at, change.result, error, end_sum(num, change.result, error), change.release, change.code, now),
    )
