"""Workers: one lease each, and what becomes of their runs.

L1. A worker's row is the fence: it is removed in the transaction that takes its runs away, so whatever it still
    writes is refused.
L3. A worker's number is never given out twice.
"""

from __future__ import annotations

from typing import Final, cast

from perdure.base import limits
from perdure.base.records import DELIVERED
from perdure.base.status import ENDED, Reason, Status
from perdure.errors import LeaseLost
from perdure.store.contract import WorkerInfo, WorkerRow
from perdure.store.sqlite import journal
from perdure.store.sqlite.control import TERMINATE_PENDING, end_now
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.rows import readable, text, worker_row

_REGISTER: Final = """
INSERT INTO workers (name, host, pid, pid_start, agents, modules, started_at, lease_until, ttl_s) VALUES (?, ?, ?, ?,
?, ?, ?, ?, ?)"""
_RENEW: Final = "UPDATE workers SET lease_until = ?2, ttl_s = ?3, agents = coalesce(?4, agents) WHERE num = ?1"
_ALL: Final = """
SELECT num, CAST(name AS BLOB), CAST(host AS BLOB), pid, pid_start, CAST(agents AS BLOB), CAST(modules AS BLOB),
  CAST(started_at AS REAL), CAST(lease_until AS REAL), (SELECT count(*) FROM runs WHERE
  worker = workers.num)
FROM workers ORDER BY num"""
_LEASE: Final = "SELECT CAST(lease_until AS REAL), CAST(ttl_s AS REAL) FROM workers WHERE num = ?"
_REMOVE: Final = "DELETE FROM workers WHERE num = ?"
# What a worker holds.
_HELD: Final = """
SELECT num, CAST(id AS BLOB), CAST(status AS BLOB), CAST(crashes AS INTEGER), CAST(crash_seq AS INTEGER),
  EXISTS (SELECT 1 FROM controls WHERE run = num)
FROM runs WHERE worker = ? ORDER BY num"""
# Nobody holds it any more.
_FREE: Final = """
UPDATE runs SET worker = NULL, status = ?2, reason = coalesce(?3, reason), waiting_on = iif(?2 = 'queued', NULL,
  waiting_on), ready_at = ?4, updated_at = ?5
WHERE num = ?1"""
_CRASHED: Final = "UPDATE runs SET attempt = attempt + 1, crashes = ?2, crash_seq = ?3 WHERE num = ?1"

_MOVING: Final = frozenset({Status.QUEUED, Status.RUNNING, Status.WAITING})

# Kinds of records that are progress, as their second bytes.
_PROGRESS_TAGS: Final = bytes(cast("int", kind.__struct_config__.tag) for kind in DELIVERED)


def register(db: Db, info: WorkerInfo, ttl_s: float, now: float) -> int:
    db.execute(
        _REGISTER,
        (
            info.name,
            info.host,
            info.pid,
            info.pid_start,
            text(info.agents),
            text(info.modules),
            now,
            now + ttl_s,
            ttl_s,
        ),
    )
    return db.last_insert_rowid()


def renew(db: Db, worker: int, ttl_s: float, agents: dict[str, str] | None, now: float) -> None:
    db.execute(_RENEW, (worker, now + ttl_s, ttl_s, None if agents is None else text(agents)))
    if not db.changes():
        raise LeaseLost


def listing(db: Db) -> list[WorkerRow]:
    return [worker_row(row) for row in db.execute(_ALL)]


def over(db: Db, worker: int, now: float) -> bool:
    """Is the worker still there, with its lease over? A lease longer than twice its ttl is a clock that jumped back."""
    lease = db.execute(_LEASE, (worker,)).get
    return lease is not None and not now <= lease[0] <= now + 2 * lease[1]


def bury(db: Db, worker: int, *, dead: bool, now: float) -> list[str] | None:
    if db.execute(_LEASE, (worker,)).get is None or not (dead or over(db, worker, now)):
        return None
    ids: list[str] = []
    for row in db.execute(_HELD, (worker,)).fetchall():
        num, run_id, status, crashes, crash_seq, asked = row
        ids.append(readable(run_id))
        if _moves(status):
            crashes = 1 if journal.any_after(db, num, crash_seq, _is_progress) else crashes + 1
            db.execute(_CRASHED, (num, crashes, journal.last(db, num)))
            if crashes > limits.crashes_without_progress_max:
                db.execute(_FREE, (num, Status.PARKED, Reason.CRASH_LOOP, None, now))
                _end_if_asked(db, num, asked, now)
                continue
        _free(db, num, status, asked, now)
    db.execute(_REMOVE, (worker,))
    return ids


def retire(db: Db, worker: int, now: float) -> None:
    for num, _, status, _, _, asked in db.execute(_HELD, (worker,)).fetchall():
        _free(db, num, status, asked, now)
    db.execute(_REMOVE, (worker,))


def _is_progress(record: bytes) -> bool:
    return record[1] in _PROGRESS_TAGS


def _moves(status: bytes) -> bool:
    """A paused or parked run stays so, and an ended one has ended, whoever held it. So does a damaged one."""
    return readable(status) in _MOVING


def _free(db: Db, num: int, status: bytes, asked: int, now: float) -> None:
    if _moves(status):
        db.execute(_FREE, (num, Status.QUEUED, None, now, now))
    else:
        name = readable(status)
        db.execute(_FREE, (num, name, None, now if asked and name not in ENDED else None, now))
    _end_if_asked(db, num, asked, now)


def _end_if_asked(db: Db, num: int, asked: int, now: float) -> None:
    """Terminate needs no worker, now that none holds the run."""
    if asked and db.execute(TERMINATE_PENDING, (num,)).get is not None:
        end_now(db, num, now)
