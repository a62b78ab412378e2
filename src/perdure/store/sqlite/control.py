"""Requests for runs: pause, resume, cancel, terminate, retry, resolve, interrupt.

C1. What is acknowledged is durable: the row of a request, or the run's new state, is committed before the verb returns.
"""

from __future__ import annotations

from typing import Final

from perdure.base.records import Ended, encode_record
from perdure.base.status import ENDED, ControlKind, Status
from perdure.errors import Conflict, NotFound
from perdure.store.contract import ControlRow, RunRow
from perdure.store.sqlite import journal, runs
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.rows import control_row

_ADD: Final = 'INSERT INTO controls (run, kind, body, "by", at) VALUES (?, ?, ?, ?, ?)'
_NEWER: Final = """
SELECT c.id, c.run, CAST(c.kind AS BLOB), CAST(c.body AS BLOB), CAST(c."by" AS BLOB), c.at FROM controls c CROSS JOIN runs r ON r.num = c.run
WHERE c.id > ?2 AND r.worker = ?1 ORDER BY c.id"""
_DROP_PAUSES: Final = "DELETE FROM controls WHERE run = ? AND kind = 'pause'"
_DROP_ALL: Final = "DELETE FROM controls WHERE run = ?"
_PENDING: Final = "SELECT 1 FROM controls WHERE run = ? AND kind = ? LIMIT 1"
TERMINATE_PENDING: Final = "SELECT 1 FROM controls WHERE run = ? AND kind = 'terminate' LIMIT 1"
_PAUSE: Final = """
UPDATE runs SET status = 'paused', reason = NULL, waiting_on = NULL, ready_at = NULL, updated_at = ?2 WHERE num = ?1"""
# A worker has something to do. A person looked at it, so deaths are counted afresh.
_READY: Final = """
UPDATE runs SET status = 'queued', reason = NULL, waiting_on = NULL, ready_at = ?2, updated_at = ?2,
  result = NULL, error = NULL, end_sum = NULL, crashes = iif(reason = 'crash_loop', 0, crashes) WHERE num = ?1"""
_AGAIN: Final = """
UPDATE runs SET status = 'queued', reason = NULL, waiting_on = NULL, ready_at = ?2, updated_at = ?2,
  crashes = 0, result = NULL, error = NULL, end_sum = NULL WHERE num = ?1"""
_END: Final = """
UPDATE runs SET status = 'cancelled', reason = NULL, waiting_on = NULL, ready_at = NULL, updated_at = ?2,
  worker = NULL, result = NULL, error = NULL, end_sum = NULL WHERE num = ?1"""


def control(db: Db, run_id: str, kind: ControlKind, body: bytes, by: str, now: float) -> RunRow:
    run = runs.by_id(db, run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id!r}. `perdure ps` lists the runs")
    if _change(db, run, kind, now):
        db.execute(_ADD, (run.num, kind, body, by, now))
    return runs.by_num(db, run.num)


def newer(db: Db, worker: int, after: int) -> list[ControlRow]:
    return [control_row(row) for row in db.execute(_NEWER, (worker, after))]


def _change(db: Db, run: RunRow, kind: ControlKind, now: float) -> bool:
    """Change the run's row; True if the request is left for a worker."""
    if run.status in ENDED:
        return _of_ended(db, run, kind, now)
    if kind is ControlKind.RETRY:
        raise _senseless(run, kind, "only a failed or cancelled run can be tried again")
    if kind is ControlKind.RESUME:
        db.execute(_DROP_PAUSES, (run.num,))
        unpaused = db.changes() > 0
    else:
        unpaused = False
    return True if run.worker is not None else _of_free(db, run, kind, now, unpaused=unpaused)


def _of_ended(db: Db, run: RunRow, kind: ControlKind, now: float) -> bool:
    match kind:
        case ControlKind.CANCEL | ControlKind.TERMINATE if run.status is Status.CANCELLED:
            return False
        case ControlKind.RETRY if run.status is not Status.COMPLETED and run.worker is None:
            db.execute(_AGAIN, (run.num, now))
            return True
        case _:
            raise _senseless(run, kind, "it has ended")


def _of_free(db: Db, run: RunRow, kind: ControlKind, now: float, *, unpaused: bool) -> bool:
    match kind:
        case ControlKind.PAUSE:
            if run.status is not Status.PAUSED:
                db.execute(_PAUSE, (run.num, now))
            return False
        case ControlKind.TERMINATE:
            end_now(db, run.num, now)
            return False
        case ControlKind.CANCEL if run.seq == 0:
            db.execute(_DROP_ALL, (run.num,))
            db.execute(_END, (run.num, now))
            return False
        case ControlKind.CANCEL:
            db.execute(_READY, (run.num, now))
            return True
        case ControlKind.RESUME if run.status in (Status.PAUSED, Status.PARKED):
            db.execute(_READY, (run.num, now))
            return True
        case ControlKind.RESUME:
            if not unpaused and db.execute(_PENDING, (run.num, kind)).get is None:
                raise _senseless(run, kind, "it is neither paused nor parked")
            return False
        case ControlKind.RESOLVE if run.seq > 0:
            db.execute(_READY, (run.num, now))
            return True
        case ControlKind.RESOLVE:
            raise _senseless(run, kind, "it has not begun, so no step is in doubt")
        case _:
            raise _senseless(run, kind, "no worker executes it now, so there is no step to interrupt")


def end_now(db: Db, num: int, now: float) -> None:
    """Cancelled, with its record, without a worker."""
    epoch = db.execute("SELECT epoch FROM runs WHERE num = ?", (num,)).get
    journal.add(db, num, epoch, journal.last(db, num) + 1, [encode_record(Ended(now, status=Status.CANCELLED))], now)
    db.execute(_DROP_ALL, (num,))
    db.execute(_END, (num, now))


def _senseless(run: RunRow, kind: ControlKind, why: str) -> Conflict:
    return Conflict(
        f"{kind} does not fit run {run.id!r}, which is {run.status}: {why}. Look at it with `perdure show {run.id}`"
    )
