"""Listings: every given filter holds, newest first, page by page."""

from __future__ import annotations

from typing import Final

from perdure.base.status import Status
from perdure.store.contract import Progress, RunChange, Where
from perdure.testing.conformance.kit import Kit, begun, executed


async def _ids(kit: Kit, where: Where, limit: int = 100, before: int | None = None) -> list[str]:
    return [run.id for run in await kit.store.runs(where, limit=limit, before=before)]


async def _some(kit: Kit) -> None:
    """Six runs: r0 completed, r1 waiting, r2 parked, the others queued; odd ones are of agent b."""
    worker = await kit.worker()
    for n in range(6):
        await kit.queued(f"r{n}", agent="ab"[n % 2], queue="q" if n > 3 else "default", tags={"n": str(n), "all": "x"})
        kit.world.advance(1)
    for n, status in enumerate((Status.COMPLETED, Status.WAITING, Status.PARKED)):
        (taken,) = await kit.claim(worker, "a", "b", only=f"r{n}")
        await kit.let_go(worker, taken.run, status)


async def a_listing_is_newest_first(kit: Kit) -> None:
    """Without a filter it is everything."""
    await _some(kit)
    assert await _ids(kit, Where()) == ["r5", "r4", "r3", "r2", "r1", "r0"]


async def a_listing_goes_page_by_page(kit: Kit) -> None:
    """`before` is the number of the last row; no run is missed or shown twice."""
    await _some(kit)
    seen: list[str] = []
    before: int | None = None
    while page := await kit.store.runs(Where(), limit=4, before=before):
        seen += [run.id for run in page]
        before = page[-1].num
    assert seen == ["r5", "r4", "r3", "r2", "r1", "r0"]


async def a_listing_filters_by_status(kit: Kit) -> None:
    """One, several, none that fits."""
    await _some(kit)
    assert await _ids(kit, Where(statuses=["parked"])) == ["r2"]
    assert await _ids(kit, Where(statuses=["queued", "completed"])) == ["r5", "r4", "r3", "r0"]
    assert await _ids(kit, Where(statuses=["queued", "completed"]), limit=2) == ["r5", "r4"]
    assert await _ids(kit, Where(statuses=["failed"])) == []


async def a_listing_filters_by_agent_and_queue(kit: Kit) -> None:
    """Both must hold."""
    await _some(kit)
    assert await _ids(kit, Where(agents=["b"])) == ["r5", "r3", "r1"]
    assert await _ids(kit, Where(agents=["a", "b"], queue="q")) == ["r5", "r4"]
    assert await _ids(kit, Where(agents=["a"], queue="q")) == ["r4"]


async def a_listing_filters_by_tags(kit: Kit) -> None:
    """Every tag given must be there with that value."""
    await _some(kit)
    assert await _ids(kit, Where(tags={"n": "3"})) == ["r3"]
    assert await _ids(kit, Where(tags={"n": "3", "all": "x"})) == ["r3"]
    assert await _ids(kit, Where(tags={"n": "3", "all": "y"})) == []


async def a_listing_filters_by_prefix(kit: Kit) -> None:
    """Literally: wildcards are ordinary characters."""
    for run_id in ("ab-1", "ab-2", "a%", "a_", "b", "ab"):
        await kit.queued(run_id)
    assert await _ids(kit, Where(id_prefix="ab")) == ["ab", "ab-2", "ab-1"]
    assert await _ids(kit, Where(id_prefix="a%")) == ["a%"]
    assert await _ids(kit, Where(id_prefix="a_")) == ["a_"]
    assert await _ids(kit, Where(id_prefix="")) == ["ab", "b", "a_", "a%", "ab-2", "ab-1"]


async def a_listing_filters_by_time(kit: Kit) -> None:
    """Between two moments, both excluded."""
    start = kit.world.time
    await _some(kit)
    assert await _ids(kit, Where(created_after=start + 1, created_before=start + 4)) == ["r3", "r2"]


async def hostile_filters_are_data(kit: Kit) -> None:
    """Whatever is in a value or a key, it only fails to match."""
    await _some(kit)
    for bad in ("'", '"', "') OR 1=1 --", "$.x", '$."n"', "%", "\\", "[0]", "; DROP TABLE runs"):
        assert await _ids(kit, Where(tags={bad: "3"})) == []
        assert await _ids(kit, Where(tags={"n": bad})) == []
        assert await _ids(kit, Where(statuses=[bad])) == []
        assert await _ids(kit, Where(agents=[bad])) == []
        assert await _ids(kit, Where(queue=bad)) == []
        assert await _ids(kit, Where(id_prefix=bad)) == []
    assert len(await _ids(kit, Where())) == 6


async def updated_at_follows_the_records(kit: Kit) -> None:
    """The later of the row's change and the last append, by the store's clock."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    for seq, record in enumerate((begun(), executed(1), executed(2)), 1):
        kit.world.advance(77.5)
        await kit.write(worker, run, record, seq=seq)
        assert (await kit.row("r")).updated_at == kit.world.time
    kit.world.advance(100)
    await kit.write(worker, run, seq=4, change=RunChange(Status.WAITING, waiting_on="timer"))
    assert (await kit.row("r")).updated_at == kit.world.time


async def progress_is_kept_until_the_next(kit: Kit) -> None:
    """A later write without progress leaves it."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    progress = Progress(3, 10.5, "page 3", 99.0, 1.0)
    await kit.write(worker, run, begun(), progress=progress)
    await kit.write(worker, run, seq=2, change=RunChange(Status.RUNNING))
    assert (await kit.row("r")).progress == progress


PROMISES: Final = (
    a_listing_is_newest_first,
    a_listing_goes_page_by_page,
    a_listing_filters_by_status,
    a_listing_filters_by_agent_and_queue,
    a_listing_filters_by_tags,
    a_listing_filters_by_prefix,
    a_listing_filters_by_time,
    hostile_filters_are_data,
    updated_at_follows_the_records,
    progress_is_kept_until_the_next,
)
