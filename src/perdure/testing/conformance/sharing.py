"""Several store objects on the same data: what one has committed, all see."""

from __future__ import annotations

import asyncio
from typing import Final

from perdure.base.status import ControlKind, Status
from perdure.store.contract import RunWrite, Verdict
from perdure.testing.conformance.kit import Kit, begun, executed, new, who


async def one_store_sees_what_another_committed(kit: Kit) -> None:
    """At once, without being told."""
    far = await kit.another()
    await kit.queued("r")
    assert await far.run("r") == await kit.row("r")


async def changed_notices_other_connections(kit: Kit) -> None:
    """Their commits; quiet again after it has said so."""
    far = await kit.another()
    await kit.store.changed()
    assert not await kit.store.changed()
    await far.create(new("r"))
    assert await kit.store.changed()
    assert not await kit.store.changed()


async def stirred_never_misses_a_commit(kit: Kit) -> None:
    """It may be wrong towards True only, and needs no waiting."""
    far = await kit.another()
    for n in range(20):
        kit.store.stirred()
        await far.create(new(f"r{n}"))
        assert kit.store.stirred()


async def many_creators_of_one_id_make_one_run(kit: Kit) -> None:
    """Exactly one is told that it is new."""
    stores = [await kit.another() for _ in range(20)]
    made = await asyncio.gather(*(store.create(new("r")) for store in stores))
    assert sum(added for _, added in made) == 1
    assert len({claimed.run.num for claimed, _ in made}) == 1


async def claims_of_two_workers_never_overlap(kit: Kit) -> None:
    """Every run goes to one of them."""
    far = await kit.another()
    one, two = await kit.worker("one"), await far.register(who("two"), ttl_s=30)
    for n in range(40):
        await kit.queued(f"r{n:02}")
    taken: list[str] = []
    for _ in range(10):
        mine, theirs = await asyncio.gather(kit.store.claim(one, ["a"], limit=3), far.claim(two, ["a"], limit=3))
        taken += [claimed.run.id for claimed in (*mine, *theirs)]
    assert sorted(taken) == [f"r{n:02}" for n in range(40)]


async def a_takeover_elsewhere_fences_here(kit: Kit) -> None:
    """Also after many writes that were let through."""
    far = await kit.another()
    worker, other = await kit.worker("one"), await far.register(who("two"), ttl_s=1_000)
    run = await kit.held("r", worker)
    calm = await kit.held("calm", worker)
    for n in range(1, 4):
        writes = [RunWrite(held.num, 1, n, [executed(n)]) for held in (run, calm)]
        assert (await kit.store.append(worker, writes)).verdicts == [Verdict.DONE] * 2
    await kit.let_go(worker, await kit.row("r"), Status.QUEUED, ready_at=kit.world.time)
    (taken,) = await far.claim(other, ["a"], limit=1)
    writes = [RunWrite(run.num, 1, 5, [executed(5)]), RunWrite(calm.num, 1, 4, [executed(4)])]
    assert (await kit.store.append(worker, writes)).verdicts == [Verdict.FENCED, Verdict.DONE]
    write = RunWrite(run.num, taken.run.epoch, 5, [executed(5)])
    assert (await far.append(other, [write])).verdicts == [Verdict.DONE]


async def a_worker_can_work_through_any_store(kit: Kit) -> None:
    """Its number is what counts, not the object; both see each other's records."""
    far = await kit.another()
    worker = await kit.worker()
    run = await kit.held("r", worker)
    for n in range(1, 9):
        store = (kit.store, far)[n % 2]
        write = RunWrite(run.num, 1, n, [executed(n)])
        assert (await store.append(worker, [write])).verdicts == [Verdict.DONE]
    assert len(await far.journal(run.num)) == 8


async def a_request_elsewhere_raises_the_mark_here(kit: Kit) -> None:
    """The next append tells it."""
    far = await kit.another()
    worker = await kit.worker()
    run = await kit.held("r", worker)
    first = await kit.store.append(worker, [RunWrite(run.num, 1, 1, [begun()])])
    await far.control("r", ControlKind.PAUSE, body=b"", by="someone")
    second = await kit.store.append(worker, [RunWrite(run.num, 1, 2, [executed(1)])])
    assert second.control_mark > first.control_mark


async def all_is_there_after_closing(kit: Kit) -> None:
    """Opened again, the store holds what it held."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.write(worker, run, begun(), executed(1))
    before = await kit.row("r")
    await kit.store.close()
    await kit.store.open(worker=False)
    assert await kit.row("r") == before
    assert await kit.store.journal(run.num) == [begun(), executed(1)]


async def housekeeping_may_be_asked_for_at_any_time(kit: Kit) -> None:
    """Whether or not it is due."""
    await kit.store.checkpoint()
    await kit.queued("r")
    kit.store.checkpoint_due()
    await kit.store.checkpoint()
    assert await kit.store.run("r")


PROMISES: Final = (
    one_store_sees_what_another_committed,
    changed_notices_other_connections,
    stirred_never_misses_a_commit,
    many_creators_of_one_id_make_one_run,
    claims_of_two_workers_never_overlap,
    a_takeover_elsewhere_fences_here,
    a_worker_can_work_through_any_store,
    a_request_elsewhere_raises_the_mark_here,
    all_is_there_after_closing,
    housekeeping_may_be_asked_for_at_any_time,
)
