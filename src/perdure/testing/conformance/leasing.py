"""Leases: who is alive by the store's clock, and what becomes of a worker's runs (L1; design 1.4)."""

from __future__ import annotations

from typing import Final

from perdure.base import limits
from perdure.base.records import Cancelled, Executed, Fired, Noted, Rested, Tried, encode_record
from perdure.base.records import ErrorData as Error
from perdure.base.status import ControlKind, Status
from perdure.errors import LeaseLost
from perdure.store.contract import RunChange, Verdict
from perdure.testing.conformance.kit import Kit, begun, ended, error_of, executed, who


async def a_registered_worker_is_listed(kit: Kit) -> None:
    """With who it is, its lease, and how many runs it holds."""
    worker = await kit.worker("me", ttl_s=30)
    await kit.held("r", worker)
    (row,) = await kit.store.workers()
    assert (row.num, row.info, row.held) == (worker, who("me"), 1)
    assert (row.started_at, row.lease_until) == (kit.world.time, kit.world.time + 30)


async def worker_numbers_are_never_reused(kit: Kit) -> None:
    """A number that was buried fences for ever."""
    seen: set[int] = set()
    for n in range(5):
        worker = await kit.worker(f"w{n}")
        assert worker not in seen
        seen.add(worker)
        await kit.store.bury(worker, dead=True)


async def a_heartbeat_renews_the_lease(kit: Kit) -> None:
    """From now on, by the store's clock; news about agents replace the old."""
    worker = await kit.worker()
    kit.world.advance(20)
    await kit.store.renew(worker, ttl_s=40)
    await kit.store.renew(worker, ttl_s=40, agents={"b": "v2"})
    (row,) = await kit.store.workers()
    assert (row.lease_until, row.info.agents) == (kit.world.time + 40, {"b": "v2"})


async def a_buried_worker_cannot_renew(kit: Kit) -> None:
    """LeaseLost: it must stop."""
    worker = await kit.worker()
    await kit.store.bury(worker, dead=True)
    assert isinstance(await error_of(kit.store.renew(worker, ttl_s=30)), LeaseLost)


async def a_living_worker_is_not_buried(kit: Kit) -> None:
    """None while its lease holds, and nothing changes."""
    worker = await kit.worker(ttl_s=30)
    run = await kit.held("r", worker)
    kit.world.advance(30)
    assert await kit.store.bury(worker, dead=False) is None
    assert await kit.row("r") == run
    assert await kit.write(worker, run, begun()) is Verdict.DONE


async def a_worker_is_buried_when_its_lease_is_over(kit: Kit) -> None:
    """Its runs become ready now; their ids are told; it is gone from the list."""
    worker = await kit.worker(ttl_s=30)
    for run_id in ("r1", "r2"):
        await kit.held(run_id, worker)
    kit.world.advance(30.001)
    assert sorted(await kit.store.bury(worker, dead=False) or []) == ["r1", "r2"]
    assert await kit.store.workers() == []
    row = await kit.row("r1")
    assert (row.status, row.worker, row.ready_at, row.attempt, row.crashes) == ("queued", None, kit.world.time, 2, 1)


async def a_dead_worker_is_buried_at_once(kit: Kit) -> None:
    """A neighbour saw that its process is gone."""
    worker = await kit.worker()
    assert await kit.store.bury(worker, dead=True) == []


async def a_lease_from_the_future_is_over(kit: Kit) -> None:
    """A clock jumped back: further away than twice its length cannot be right."""
    worker = await kit.worker(ttl_s=30)
    kit.world.advance(-29)
    assert await kit.store.bury(worker, dead=False) is None
    kit.world.advance(-2)
    assert await kit.store.bury(worker, dead=False) == []


async def a_worker_is_buried_once(kit: Kit) -> None:
    """The second one to try gets None."""
    worker = await kit.worker()
    assert await kit.store.bury(worker, dead=True) == []
    assert await kit.store.bury(worker, dead=True) is None
    assert await kit.store.bury(4711, dead=True) is None


async def _die(kit: Kit, *records: bytes) -> tuple[int, int]:
    """A worker takes the run, writes and dies; the run's attempt and crashes afterwards."""
    worker = await kit.worker()
    (taken,) = await kit.claim(worker)
    if records:
        assert await kit.write(worker, taken.run, *records, seq=taken.run.seq + 1) is Verdict.DONE
    await kit.store.bury(worker, dead=True)
    row = await kit.row(taken.run.id)
    return row.attempt, row.crashes


async def deaths_without_progress_are_counted(kit: Kit) -> None:
    """`crashes` grows with each, `attempt` too."""
    await kit.queued("r")
    assert [await _die(kit, *([begun()] if n == 0 else [])) for n in range(4)] == [(2, 1), (3, 2), (4, 3), (5, 4)]


async def progress_resets_the_count(kit: Kit) -> None:
    """Each kind of record that enters the agent's loop is progress; a decision or a failed attempt is not."""
    await kit.queued("r")
    progress = [Executed(1.0, position=1, attempt=1), Fired(1.0, timer=1), Noted(1.0, text="t"), Cancelled(1.0)]
    for record in progress:
        await _die(kit)
        assert (await _die(kit))[1] >= 2
        assert (await _die(kit, encode_record(record)))[1] == 1
    failed = Tried(1.0, position=1, attempt=1, error=Error("E", "m"), retry_at=2.0)
    rested = Rested(1.0, asked=1, timers=0, wake_at=None)
    assert (await _die(kit, encode_record(failed), encode_record(rested)))[1] == 2


async def a_crash_loop_is_parked(kit: Kit) -> None:
    """Over the limit of deaths without progress; nothing takes it up until a person resumes it."""
    await kit.queued("r")
    for _ in range(limits.crashes_without_progress_max):
        await _die(kit)
    assert (await kit.row("r")).status == "queued"
    await _die(kit)
    row = await kit.row("r")
    assert (row.status, row.reason, row.ready_at, row.worker) == ("parked", "crash_loop", None, None)
    await kit.ask("r", ControlKind.RESUME)
    await _die(kit)
    assert (await kit.row("r")).status == "queued"


async def burying_keeps_what_stands_still(kit: Kit) -> None:
    """A held run that is paused or parked stays so; one that has ended has ended. None of them counts a crash."""
    worker = await kit.worker()
    for status in (Status.PAUSED, Status.PARKED, Status.COMPLETED):
        run = await kit.held(status, worker)
        records = [begun(), ended()] if status is Status.COMPLETED else [begun()]
        await kit.write(worker, run, *records, change=RunChange(status, result=b"x"))
    await kit.store.bury(worker, dead=True)
    for status in (Status.PAUSED, Status.PARKED, Status.COMPLETED):
        row = await kit.row(status)
        assert (row.status, row.worker, row.ready_at, row.attempt) == (status, None, None, 1)


async def requests_outlive_a_worker(kit: Kit) -> None:
    """What was asked of a held run is brought by the next claim (C1)."""
    worker, other = await kit.worker("one"), await kit.worker("two")
    run = await kit.held("r", worker)
    await kit.write(worker, run, begun())
    await kit.ask("r", ControlKind.PAUSE)
    await kit.store.bury(worker, dead=True)
    (taken,) = await kit.claim(other)
    assert [row.kind for row in taken.controls] == [ControlKind.PAUSE]


async def terminate_outlives_a_worker(kit: Kit) -> None:
    """It needs no other worker: the run ends with the one that held it."""
    for run_id, dead in (("r1", True), ("r2", False)):
        worker = await kit.worker()
        run = await kit.held(run_id, worker)
        await kit.write(worker, run, begun(), executed(1))
        await kit.ask(run_id, ControlKind.TERMINATE)
        await (kit.store.bury(worker, dead=True) if dead else kit.store.retire(worker))
        row = await kit.row(run_id)
        assert (row.status, row.ready_at, row.seq) == ("cancelled", None, 3)


async def a_retired_worker_leaves_its_runs_ready(kit: Kit) -> None:
    """Without a crash; it is gone from the list and writes nothing more."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.store.retire(worker)
    row = await kit.row("r")
    assert (row.status, row.worker, row.ready_at, row.attempt, row.crashes) == ("queued", None, kit.world.time, 1, 0)
    assert await kit.store.workers() == []
    assert isinstance(await error_of(kit.write(worker, run, begun())), LeaseLost)
    await kit.store.retire(worker)  # again: nothing


PROMISES: Final = (
    a_registered_worker_is_listed,
    worker_numbers_are_never_reused,
    a_heartbeat_renews_the_lease,
    a_buried_worker_cannot_renew,
    a_living_worker_is_not_buried,
    a_worker_is_buried_when_its_lease_is_over,
    a_dead_worker_is_buried_at_once,
    a_lease_from_the_future_is_over,
    a_worker_is_buried_once,
    deaths_without_progress_are_counted,
    progress_resets_the_count,
    a_crash_loop_is_parked,
    burying_keeps_what_stands_still,
    requests_outlive_a_worker,
    terminate_outlives_a_worker,
    a_retired_worker_leaves_its_runs_ready,
)
