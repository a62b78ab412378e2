"""Who may run what: claims, readiness, and runs without code.

L1. A run is taken only by a registered worker and only while nobody holds it; its epoch grows.

A run is ready when nobody holds it and `ready_at` has passed. The index of ready runs starts with the agent, then the
priority, so that a claim walks down the levels of priority and never sorts a backlog.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from typing import Final, cast

from perdure.base.status import Reason
from perdure.errors import StoreDamaged
from perdure.store.contract import Claimed, ControlRow
from perdure.store.sqlite import runs
from perdure.store.sqlite.append import fence
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.rows import control_row, readable, text

# The highest level of priority at which an agent has runs, and the next one below.
_TOP: Final = "SELECT max(priority) FROM runs WHERE worker IS NULL AND ready_at IS NOT NULL AND agent = ?"
_NEXT: Final = (
    "SELECT max(priority) FROM runs WHERE worker IS NULL AND ready_at IS NOT NULL AND agent = ? AND priority < ?"
)
# Ready runs of one agent at one level, the longest ready first.
_DUE: Final = """
SELECT -priority, ready_at, num FROM runs
WHERE worker IS NULL AND ready_at IS NOT NULL AND agent = ? AND priority = ? AND ready_at <= ? ORDER BY ready_at, num
LIMIT ?"""
# When the first run of one agent at one level becomes ready.
_SOONEST: Final = (
    "SELECT min(ready_at) FROM runs WHERE worker IS NULL AND ready_at IS NOT NULL AND agent = ? AND priority = ?"
)
# The same for one run.
_ONE: Final = "SELECT agent, ready_at, num FROM runs WHERE id = ? AND worker IS NULL AND ready_at IS NOT NULL"
# Take it.
_TAKE: Final = """
UPDATE runs SET worker = ?2, epoch = epoch + 1, status = 'running', reason = NULL, waiting_on = NULL, ready_at = NULL,
  updated_at = ?3
WHERE num = ?1 AND worker IS NULL"""
# What was asked of it meanwhile.
_ASKED: Final = """
SELECT id, run, CAST(kind AS BLOB), CAST(body AS BLOB), CAST("by" AS BLOB), at FROM controls
WHERE run IN (SELECT value FROM json_each(?)) ORDER BY id"""
# A row that cannot be trusted stays where a person can see it.
_SPOILT: Final = """
UPDATE runs SET worker = NULL, ready_at = NULL, status = 'parked', reason = 'store', updated_at = ?2 WHERE num = ?1"""
# Those of an earlier claim that are still held: its COMMIT answered with an error.
_STILL: Final = "SELECT 1 FROM runs WHERE num = ? AND worker = ? AND epoch = ?"
# Parked runs whose code came back.
_READMISSIBLE: Final = """
SELECT num FROM runs
WHERE status = 'parked' AND worker IS NULL AND agent = ?1
  AND (reason = 'no_code' OR reason = 'diverged' AND code IS NOT ?2)"""
_READMIT: Final = """
UPDATE runs SET status = 'queued', reason = NULL, waiting_on = NULL, ready_at = ?2, updated_at = ?2 WHERE num = ?1"""

# Agents with runs nobody holds, one step along the index at a time.
_AGENT: Final = """
SELECT CAST(min(agent) AS BLOB) FROM runs WHERE worker IS NULL AND ready_at IS NOT NULL AND agent > CAST(? AS TEXT)"""
# Ready runs of an agent nobody serves: what its module is and whether it began.
_UNSERVED: Final = """
SELECT num, CAST(id AS BLOB), CAST(module AS BLOB), EXISTS (SELECT 1 FROM journal WHERE run = num) FROM runs
WHERE worker IS NULL AND ready_at IS NOT NULL AND agent = CAST(? AS TEXT) AND ready_at <= ?"""
_PARK: Final = (
    "UPDATE runs SET status = 'parked', reason = ?2, waiting_on = NULL, ready_at = NULL, updated_at = ?3 WHERE num = ?1"
)
_SERVED: Final = "SELECT CAST(agents AS BLOB) FROM workers"

Held = tuple[int, int]
"""A run's number and the epoch at which it was taken."""


def due(db: Db, agents: list[str], limit: int, only: str | None, now: float) -> list[int]:
    """Numbers of ready runs, highest priority and longest ready first."""
    if only is not None:
        row = db.execute(_ONE, (only,)).get
        return [row[2]] if row is not None and row[0] in agents and row[1] <= now and limit > 0 else []
    found = [list(_due_of(db, agent, limit, now)) for agent in dict.fromkeys(agents)]
    return [num for (_, _, num), _ in zip(heapq.merge(*found), range(limit), strict=False)]


def _due_of(db: Db, agent: str, limit: int, now: float) -> Iterator[tuple[int, float, int]]:
    left = limit
    for priority in _levels(db, agent):
        if left <= 0:
            return
        for row in db.execute(_DUE, (agent, priority, now, left)):
            left -= 1
            yield row


def _levels(db: Db, agent: str) -> Iterator[int]:
    priority = db.execute(_TOP, (agent,)).get
    while priority is not None:
        yield priority
        priority = db.execute(_NEXT, (agent, priority)).get


def claim(db: Db, worker: int, agents: list[str], limit: int, only: str | None, now: float) -> list[Claimed]:
    nums = due(db, agents, limit, only, now)
    if not nums:
        return []
    fence(db, worker)  # L1
    db.executemany(_TAKE, [(num, worker, now) for num in nums])
    return claimed(db, nums, now)


def claimed(db: Db, nums: list[int], now: float) -> list[Claimed]:
    """The runs with their requests; one whose row is damaged is parked instead (S1)."""
    asked: dict[int, list[ControlRow]] = {}
    for row in db.execute(_ASKED, (text(nums),)):
        asked.setdefault(row[1], []).append(control_row(row))
    taken: list[Claimed] = []
    for num in nums:
        try:
            taken.append(Claimed(runs.by_num(db, num), asked.get(num, [])))
        except StoreDamaged:
            db.execute(_SPOILT, (num, now))
    return taken


def still_held(db: Db, worker: int, held: list[Held], now: float) -> list[Claimed]:
    """Of the runs that an unanswered COMMIT may have taken, those it did take."""
    return claimed(db, [num for num, epoch in held if db.execute(_STILL, (num, worker, epoch)).get is not None], now)


def next_ready(db: Db, agents: list[str], only: str | None) -> float | None:
    if only is not None:
        row = db.execute(_ONE, (only,)).get
        return row[1] if row is not None and row[0] in agents else None
    times = (
        cast("float | None", db.execute(_SOONEST, (agent, priority)).get)
        for agent in dict.fromkeys(agents)
        for priority in _levels(db, agent)
    )
    return min((at for at in times if at is not None), default=None)


def readmissible(db: Db, agents: dict[str, str]) -> list[int]:
    return [row[0] for agent, code in agents.items() for row in db.execute(_READMISSIBLE, (agent, code))]


def readmit(db: Db, agents: dict[str, str], now: float) -> int:
    nums = readmissible(db, agents)
    db.executemany(_READMIT, [(num, now) for num in nums])
    return len(nums)


def orphans(db: Db, agents: list[str], modules: list[str], now: float) -> list[tuple[int, str]]:
    """Number and id of the ready runs whose code is gone."""
    served = set(agents)
    for (names,) in db.execute(_SERVED):
        try:
            served.update(json.loads(names))
        except (ValueError, TypeError):
            return []  # what that worker serves will be known when it is buried
    gone: list[tuple[int, str]] = []
    agent = db.execute(_AGENT, (b"",)).get
    while agent is not None:
        name = readable(agent)
        if name not in agents:
            for num, run_id, module, begun in db.execute(_UNSERVED, (agent, now)):
                if readable(module) in modules or (begun and name not in served):
                    gone.append((num, readable(run_id)))
        agent = db.execute(_AGENT, (agent,)).get
    return gone


def park_orphans(db: Db, agents: list[str], modules: list[str], now: float) -> list[str]:
    gone = orphans(db, agents, modules, now)
    db.executemany(_PARK, [(num, Reason.NO_CODE, now) for num, _ in gone])
    return [run_id for _, run_id in gone]
