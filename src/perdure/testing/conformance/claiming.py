"""Claims: a ready run goes to exactly one worker, the most urgent first (L1)."""

from __future__ import annotations

from typing import Final

from perdure.base.status import ControlKind, Reason, Status
from perdure.errors import LeaseLost
from perdure.testing.conformance.kit import Kit, error_of


async def a_claimed_run_is_running(kit: Kit) -> None:
    """It is held, its epoch grows, and why it stood still is forgotten."""
    worker = await kit.worker("me")
    await kit.queued("r")
    (taken,) = await kit.claim(worker)
    run = taken.run
    assert (run.status, run.worker, run.worker_name, run.epoch) == ("running", worker, "me", 1)
    assert (run.reason, run.waiting_on, run.ready_at) == (None, None, None)
    assert run == await kit.row("r")


async def the_epoch_grows_at_every_claim(kit: Kit) -> None:
    """So that what an earlier holder still writes is refused."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    for epoch in (2, 3, 4):
        await kit.let_go(worker, run, Status.WAITING, ready_at=kit.world.time)
        (taken,) = await kit.claim(worker)
        run = taken.run
        assert run.epoch == epoch


async def a_held_run_is_not_claimed(kit: Kit) -> None:
    """Not even by its holder."""
    worker, other = await kit.worker("one"), await kit.worker("two")
    await kit.held("r", worker)
    assert await kit.claim(worker) == []
    assert await kit.claim(other) == []


async def a_run_is_claimed_once_its_time_has_come(kit: Kit) -> None:
    """By the store's clock; exactly then, not before."""
    worker = await kit.worker()
    await kit.queued("r", ready_at=kit.world.time + 10)
    kit.world.advance(9.999)
    assert await kit.claim(worker) == []
    kit.world.advance(0.001)
    assert len(await kit.claim(worker)) == 1


async def a_run_without_a_time_is_not_claimed(kit: Kit) -> None:
    """It waits for a request."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.let_go(worker, run, Status.WAITING, waiting_on="human")
    kit.world.advance(1e9)
    assert await kit.claim(worker) == []


async def only_the_given_agents_are_claimed(kit: Kit) -> None:
    """What a worker does not serve it leaves alone."""
    worker = await kit.worker()
    for n, agent in enumerate("abcab"):
        await kit.queued(f"r{n}", agent=agent)
    assert [taken.run.id for taken in await kit.claim(worker, "c", "b")] == ["r1", "r2", "r4"]
    assert await kit.claim(worker, "d") == []
    assert await kit.store.claim(worker, [], limit=5) == []


async def urgent_runs_come_first_then_the_longest_ready(kit: Kit) -> None:
    """Across agents, and also when they are taken one by one."""
    worker = await kit.worker()
    order = [
        ("late", 0, 50, "a"),
        ("low", -5, 1, "b"),
        ("soon", 0, 40, "b"),
        ("urgent", 7, 60, "a"),
        ("top", 9, 70, "b"),
    ]
    for run_id, priority, ready_at, agent in order:
        await kit.queued(run_id, priority=priority, ready_at=float(ready_at), agent=agent)
    first = await kit.claim(worker, "a", "b", limit=2)
    rest = [await kit.claim(worker, "a", "b", limit=1) for _ in range(3)]
    ids = [taken.run.id for taken in first] + [taken.run.id for (taken,) in rest]
    assert ids == ["top", "urgent", "soon", "late", "low"]


async def a_backlog_is_taken_in_portions(kit: Kit) -> None:
    """`limit` holds, and nothing is left behind."""
    worker = await kit.worker()
    for n in range(25):
        await kit.queued(f"r{n:02}", priority=n % 3)
    sizes: list[int] = []
    while taken := await kit.claim(worker, limit=10):
        sizes.append(len(taken))
    assert sizes == [10, 10, 5]


async def only_claims_just_that_run(kit: Kit) -> None:
    """`only` is one id, if it is ready and of these agents."""
    worker = await kit.worker()
    await kit.queued("r1", priority=5)
    await kit.queued("r2")
    await kit.queued("later", ready_at=kit.world.time + 1)
    assert [taken.run.id for taken in await kit.claim(worker, only="r2")] == ["r2"]
    assert await kit.claim(worker, only="r2") == []
    assert await kit.claim(worker, only="later") == []
    assert await kit.claim(worker, "b", only="r1") == []
    assert await kit.claim(worker, only="nobody") == []


async def a_claim_brings_what_was_asked(kit: Kit) -> None:
    """The requests of the run that nobody acted on, in order, and no others."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    other = await kit.held("other", worker)
    await kit.let_go(worker, run, Status.WAITING)
    await kit.ask("other", ControlKind.PAUSE)
    await kit.ask("r", ControlKind.RESOLVE, body=b"why", by="ann")
    await kit.ask("r", ControlKind.CANCEL)
    (taken,) = await kit.claim(worker)
    asked = [(row.kind, row.body, row.by, row.run) for row in taken.controls]
    assert asked == [(ControlKind.RESOLVE, b"why", "ann", run.num), (ControlKind.CANCEL, b"", "someone", run.num)]
    assert other.num != run.num


async def a_buried_worker_claims_nothing(kit: Kit) -> None:
    """LeaseLost, and the run stays free (L1)."""
    worker = await kit.worker()
    await kit.queued("r")
    await kit.store.bury(worker, dead=True)
    assert isinstance(await error_of(kit.claim(worker)), LeaseLost)
    assert (await kit.row("r")).worker is None


async def the_next_ready_time_is_known(kit: Kit) -> None:
    """The soonest of the runs nobody holds, of these agents; None if there is none."""
    worker = await kit.worker()
    now = kit.world.time
    await kit.queued("a1", ready_at=now + 9)
    await kit.queued("a2", ready_at=now + 5, priority=-1)
    await kit.queued("b1", agent="b", ready_at=now + 1)
    await kit.held("a3", worker)
    assert await kit.store.next_ready(["a"]) == now + 5
    assert await kit.store.next_ready(["a", "b"]) == now + 1
    assert await kit.store.next_ready(["c"]) is None
    assert await kit.store.next_ready(["a"], only="a1") == now + 9
    assert await kit.store.next_ready(["a"], only="b1") is None
    assert await kit.store.next_ready(["a"], only="a3") is None


async def _parked(kit: Kit, worker: int, run_id: str, reason: Reason, **fields: str) -> None:
    run = await kit.held(run_id, worker, **fields)
    await kit.let_go(worker, run, Status.PARKED, reason=reason, code="v1")


async def other_code_readmits_diverged_runs(kit: Kit) -> None:
    """The same code does not; nor are other agents' runs or other reasons touched."""
    worker = await kit.worker()
    await _parked(kit, worker, "r", Reason.DIVERGED)
    await _parked(kit, worker, "doubt", Reason.IN_DOUBT)
    await _parked(kit, worker, "other", Reason.DIVERGED, agent="b")
    assert await kit.store.readmit({"a": "v1"}) == 0
    assert await kit.store.readmit({"a": "v2"}) == 1
    row = await kit.row("r")
    assert (row.status, row.reason, row.ready_at) == ("queued", None, kit.world.time)
    assert (await kit.row("doubt")).status == (await kit.row("other")).status == "parked"


async def runs_without_code_are_readmitted_when_it_comes(kit: Kit) -> None:
    """Whatever its digest: it was not there, and now it is."""
    worker = await kit.worker()
    await _parked(kit, worker, "r", Reason.NO_CODE)
    assert await kit.store.readmit({"b": "v1"}) == 0
    assert await kit.store.readmit({"a": "v1"}) == 1
    assert (await kit.row("r")).status == "queued"


async def orphans_of_a_served_module_are_parked(kit: Kit) -> None:
    """Ready, held by nobody, of a module that is here and no longer has that agent."""
    worker = await kit.worker()
    await kit.queued("gone", agent="b")
    await kit.queued("fine")
    await kit.queued("elsewhere", agent="b", module="n")
    await kit.queued("later", agent="b", ready_at=kit.world.time + 5)
    await kit.held("held", worker, agent="b")
    assert await kit.store.park_orphans(["a"], ["m"]) == ["gone"]
    row = await kit.row("gone")
    assert (row.status, row.reason, row.ready_at) == ("parked", "no_code", None)
    assert await kit.store.park_orphans(["a"], ["m"]) == []


async def begun_runs_that_nobody_serves_are_parked(kit: Kit) -> None:
    """Whatever their module; but not while any worker serves the agent."""
    worker = await kit.worker(agents={"a": "v1"})
    run = await kit.held("begun", worker, agent="b", module="n")
    await kit.let_go(worker, run, Status.QUEUED, ready_at=kit.world.time)
    await kit.queued("new", agent="b", module="n")
    server = await kit.worker("other", agents={"b": "v1"})
    assert await kit.store.park_orphans(["a"], ["m"]) == []
    await kit.store.retire(server)
    assert await kit.store.park_orphans(["a"], ["m"]) == ["begun"]


PROMISES: Final = (
    a_claimed_run_is_running,
    the_epoch_grows_at_every_claim,
    a_held_run_is_not_claimed,
    a_run_is_claimed_once_its_time_has_come,
    a_run_without_a_time_is_not_claimed,
    only_the_given_agents_are_claimed,
    urgent_runs_come_first_then_the_longest_ready,
    a_backlog_is_taken_in_portions,
    only_claims_just_that_run,
    a_claim_brings_what_was_asked,
    a_buried_worker_claims_nothing,
    the_next_ready_time_is_known,
    other_code_readmits_diverged_runs,
    runs_without_code_are_readmitted_when_it_comes,
    orphans_of_a_served_module_are_parked,
    begun_runs_that_nobody_serves_are_parked,
)
