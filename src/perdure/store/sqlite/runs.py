"""Runs: creating one, finding one, listing many.

A1. An id names one run for ever: creating it again gives the run that is there.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

from perdure.base.status import Status
from perdure.errors import StoreDamaged, UsageError
from perdure.store.contract import Claimed, NewRun, RunRow, Where
from perdure.store.sqlite.append import fence
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.rows import RUN, input_sum, listed_row, run_row, text

INPUT_BYTES_INLINE_MAX: Final = (
    1024  # a longer input lies beside the row, so that a change of status does not rewrite it
)

# A new run, unless the id is taken.
_CREATE: Final = """
INSERT INTO runs (id, agent, module, status, worker, epoch, attempt, crashes, crash_seq, ready_at, queue, priority,
  tags, created_at, updated_at, input_sum, input)
VALUES (?, ?, ?, ?, ?, ?, 1, 0, 0, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING"""
# Its long input.
_INPUT: Final = "INSERT INTO inputs (run, body) VALUES (?, ?)"
_WORKER_NAME: Final = "SELECT name FROM workers WHERE num = ?"
_BY_ID: Final = RUN + "WHERE r.id = ?"
_BY_NUM: Final = RUN + "WHERE r.num = ?"

# The pieces of a listing. Every value is bound; nothing the user gave becomes SQL.
_AGENTS: Final = "AND r.agent IN (SELECT value FROM json_each(?)) "
_QUEUE: Final = "AND r.queue = ? "
_TAG: Final = "AND EXISTS (SELECT 1 FROM json_each(r.tags) WHERE key = ? AND value = ?) "
_PREFIX: Final = "AND r.id >= ? AND r.id < ? "
_AFTER: Final = "AND r.created_at > ? "
_BEFORE: Final = "AND r.created_at < ? "
_PAGE: Final = "AND r.num < ? "
_ANY_STATUS: Final = "WHERE 1 "
_ONE_STATUS: Final = "WHERE r.status = ? "
_NEWEST: Final = "ORDER BY r.num DESC LIMIT ?"
_NEWEST_BY_PREFIX: Final = "ORDER BY +r.num DESC LIMIT ?"  # the plus makes SQLite use the index on ids


def create(db: Db, new: NewRun, worker: int | None, now: float) -> tuple[Claimed, bool]:
    ready_at = now if new.ready_at is None else new.ready_at
    taken = worker is not None and ready_at <= now
    if worker is not None and taken:
        fence(db, worker)  # L1
    long = len(new.input) > INPUT_BYTES_INLINE_MAX
    tags = text(new.tags)
    texts = (new.id.encode(), new.agent.encode(), new.module.encode(), new.queue.encode(), tags.encode())
    db.execute(
        _CREATE,
        (
            new.id,
            new.agent,
            new.module,
            Status.RUNNING if taken else Status.QUEUED,
            worker if taken else None,
            int(taken),
            None if taken else ready_at,
            new.queue,
            new.priority,
            tags,
            now,
            now,
            input_sum(texts, new.priority, now, new.input),
            None if long else new.input,
        ),
    )
    if not db.changes():
        row = by_id(db, new.id)
        if row is None:
            raise UsageError(f"the id {new.id!r} cannot be stored. Choose another one")
        return Claimed(row, []), False
    num = db.last_insert_rowid()
    if long:
        db.execute(_INPUT, (num, new.input))
    return Claimed(_made(db, num, new, worker if taken else None, None if taken else ready_at, now), []), True


def _made(db: Db, num: int, new: NewRun, worker: int | None, ready_at: float | None, now: float) -> RunRow:
    """What `by_id` would find: to read it back costs as much as to write it."""
    return RunRow(
        num=num,
        id=new.id,
        agent=new.agent,
        module=new.module,
        status=Status.QUEUED if worker is None else Status.RUNNING,
        reason=None,
        waiting_on=None,
        input=new.input,
        result=None,
        error=None,
        queue=new.queue,
        priority=new.priority,
        tags=new.tags,
        worker=worker,
        worker_name=None if worker is None else db.execute(_WORKER_NAME, (worker,)).get,
        epoch=int(worker is not None),
        attempt=1,
        crashes=0,
        seq=0,
        code=None,
        ready_at=ready_at,
        progress=None,
        created_at=now,
        updated_at=now,
    )


def by_id(db: Db, run_id: str) -> RunRow | None:
    row = db.execute(_BY_ID, (run_id,)).get
    return None if row is None else run_row(row)


def by_num(db: Db, num: int) -> RunRow:
    row = db.execute(_BY_NUM, (num,)).get
    if row is None:
        raise StoreDamaged(f"run number {num} is in an index and nowhere else. Restore a backup; other runs go on")
    return run_row(row)


def listing(db: Db, where: Where, limit: int, before: int | None) -> list[RunRow]:
    pieces, values = _filter(where)
    if before is not None:
        pieces += _PAGE
        values.append(before)
    order = _NEWEST_BY_PREFIX if where.id_prefix else _NEWEST
    if not where.statuses:
        return _page(db, RUN + _ANY_STATUS + pieces + order, [*values, limit])
    # One walk down the index per status: a rare status is found at once, a frequent one is not sorted.
    sql = RUN + _ONE_STATUS + pieces + order
    db.execute("BEGIN")  # one state for all of them, so that no run shows twice
    found = [_page(db, sql, [status, *values, limit]) for status in dict.fromkeys(where.statuses)]
    db.execute("COMMIT")
    merged = heapq.merge(*found, key=lambda run: run.num, reverse=True)
    return [run for run, _ in zip(merged, range(limit), strict=False)]


def _page(db: Db, sql: str, values: list[Any]) -> list[RunRow]:
    return [listed_row(row) for row in db.execute(sql, values)]


def _filter(where: Where) -> tuple[str, list[Any]]:
    pieces = ""
    values: list[Any] = []
    if where.agents:
        pieces += _AGENTS
        values.append(text(where.agents))
    if where.queue is not None:
        pieces += _QUEUE
        values.append(where.queue)
    for key, value in where.tags.items():
        pieces += _TAG
        values += [key, value]
    if where.id_prefix:
        pieces += _PREFIX
        values += [where.id_prefix, where.id_prefix + "\U0010ffff"]
    if where.created_after is not None:
        pieces += _AFTER
        values.append(where.created_after)
    if where.created_before is not None:
        pieces += _BEFORE
        values.append(where.created_before)
    return pieces, values
