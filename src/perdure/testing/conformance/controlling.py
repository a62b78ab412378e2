"""Requests: every kind in every state a run can be in, and what is left for a worker (C1)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from perdure.base.records import Ended, ErrorData, decode_record
from perdure.base.status import ControlKind, Status
from perdure.errors import Conflict, NotFound
from perdure.store.contract import RunRow, Verdict
from perdure.testing.conformance.kit import Kit, begun, error_of

PAUSE, RESUME, CANCEL = ControlKind.PAUSE, ControlKind.RESUME, ControlKind.CANCEL
TERMINATE, RETRY, RESOLVE, INTERRUPT = (
    ControlKind.TERMINATE,
    ControlKind.RETRY,
    ControlKind.RESOLVE,
    ControlKind.INTERRUPT,
)

# The states, and for each kind what becomes of the run: its status afterwards; "ready" is queued with the request left
# for the claim; "row" leaves the run alone and a row for its worker; "-" is a Conflict; "=" changes nothing.
STATES: Final = ("new", "queued", "waiting", "held", "paused", "parked", "completed", "failed", "cancelled")
MATRIX: Final = {
    PAUSE: ("paused", "paused", "paused", "row", "=", "paused", "-", "-", "-"),
    RESUME: ("-", "-", "-", "row", "ready", "ready", "-", "-", "-"),
    CANCEL: ("cancelled", "ready", "ready", "row", "ready", "ready", "-", "-", "="),
    TERMINATE: ("cancelled", "cancelled", "cancelled", "row", "cancelled", "cancelled", "-", "-", "="),
    RETRY: ("-", "-", "-", "-", "-", "-", "-", "ready", "ready"),
    RESOLVE: ("-", "ready", "ready", "row", "ready", "ready", "-", "-", "-"),
    INTERRUPT: ("-", "-", "-", "row", "-", "-", "-", "-", "-"),
}


async def _make(kit: Kit, worker: int, run_id: str, state: str) -> RunRow:
    if state == "new":
        return await kit.queued(run_id, ready_at=kit.world.time + 1_000)
    run = await kit.held(run_id, worker)
    if state == "held":
        await kit.write(worker, run, begun())
        return await kit.row(run_id)
    reason = "in_doubt" if state == "parked" else None
    error = ErrorData("E", "m") if state == "failed" else None
    ready_at = kit.world.time + 1_000 if state == "queued" else None
    result = b"result" if state == "completed" else None
    return await kit.let_go(worker, run, Status(state), reason=reason, error=error, ready_at=ready_at, result=result)


def _row_of(kind: ControlKind) -> Callable[[Kit], Coroutine[Any, Any, None]]:
    async def promise(kit: Kit) -> None:
        worker, late = await kit.worker("one"), await kit.worker("two")
        for state, expected in zip(STATES, MATRIX[kind], strict=True):
            run_id = f"{kind}-{state}"
            before = await _make(kit, worker, run_id, state)
            kit.world.advance(1)
            await _check(kit, (worker, late), before, kind, expected)

    promise.__name__ = promise.__qualname__ = f"{kind}_fits_or_is_refused_in_every_state"
    promise.__doc__ = f"The row of {kind} in the matrix."
    return promise


async def _check(kit: Kit, workers: tuple[int, int], before: RunRow, kind: ControlKind, expected: str) -> None:
    run_id, (worker, late) = before.id, workers
    known = await kit.store.controls(worker, after=0)
    if expected == "-":
        assert isinstance(await error_of(kit.ask(run_id, kind)), Conflict), (run_id, expected)
        assert await kit.row(run_id) == before, run_id
        return
    row = await kit.ask(run_id, kind, body=b"why", by="ann")
    assert row == await kit.row(run_id), run_id
    if expected == "row":
        assert row == before, run_id
        (asked,) = (await kit.store.controls(worker, after=0))[len(known) :]
        assert (asked.run, asked.kind, asked.body, asked.by) == (row.num, kind, b"why", "ann"), run_id
        assert asked.at == kit.world.time, run_id
    elif expected == "=":
        assert row == before, run_id
    elif expected == "ready":
        assert (row.status, row.ready_at, row.reason, row.waiting_on) == ("queued", kit.world.time, None, None), run_id
        (taken,) = await kit.claim(late, only=run_id)
        assert [asked.kind for asked in taken.controls] == [kind], run_id
    else:
        assert (row.status, row.ready_at, row.worker) == (expected, None, None), run_id
        assert await kit.claim(late, only=run_id) == [], run_id


async def a_request_for_no_run_is_not_found(kit: Kit) -> None:
    """For every kind."""
    for kind in ControlKind:
        assert isinstance(await error_of(kit.ask("nobody", kind)), NotFound)


async def terminating_leaves_a_record(kit: Kit) -> None:
    """The journal ends with the run's end."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.let_go(worker, run, Status.WAITING)
    await kit.ask("r", TERMINATE)
    last = decode_record((await kit.store.journal(run.num))[-1])
    assert isinstance(last, Ended)
    assert (last.status, last.at) == ("cancelled", kit.world.time)


async def cancelling_a_run_that_never_began_leaves_no_record(kit: Kit) -> None:
    """There is nothing to end."""
    run = await kit.queued("r")
    await kit.ask("r", CANCEL)
    assert await kit.store.journal(run.num) == []


async def cancelling_settles_all_requests(kit: Kit) -> None:
    """A run that is tried again later is not haunted by what was asked before."""
    worker = await kit.worker()
    await kit.held("r", worker)
    await kit.ask("r", PAUSE)
    await kit.store.bury(worker, dead=True)
    assert (await kit.ask("r", CANCEL)).status == "cancelled"
    await kit.ask("r", RETRY)
    (taken,) = await kit.claim(await kit.worker())
    assert [row.kind for row in taken.controls] == [RETRY]


async def resume_takes_back_a_pause_nobody_acted_on(kit: Kit) -> None:
    """The holder is told of the resume only."""
    worker = await kit.worker()
    await kit.held("r", worker)
    await kit.ask("r", PAUSE)
    await kit.ask("r", RESUME)
    assert [row.kind for row in await kit.store.controls(worker, after=0)] == [RESUME]


async def resume_takes_back_a_pause_of_a_dead_worker(kit: Kit) -> None:
    """The run goes on where the next worker takes it up."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.write(worker, run, begun())
    await kit.ask("r", PAUSE)
    await kit.store.bury(worker, dead=True)
    await kit.ask("r", RESUME)
    (taken,) = await kit.claim(await kit.worker())
    assert taken.controls == []


async def resuming_twice_changes_nothing_more(kit: Kit) -> None:
    """The first one waits for a worker still; one request is left for it."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.let_go(worker, run, Status.PAUSED)
    await kit.ask("r", RESUME)
    await kit.ask("r", RESUME)
    (taken,) = await kit.claim(worker)
    assert [row.kind for row in taken.controls] == [RESUME]


async def retrying_clears_the_end(kit: Kit) -> None:
    """Result and error are gone, and deaths are counted afresh."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.let_go(worker, run, Status.FAILED, error=ErrorData("E", "m"))
    row = await kit.ask("r", RETRY)
    assert (row.result, row.error, row.crashes, row.seq) == (None, None, 0, 1)


async def requests_are_told_in_order(kit: Kit) -> None:
    """To the worker that holds the run, from an id on."""
    worker, other = await kit.worker("one"), await kit.worker("two")
    await kit.held("mine", worker)
    await kit.held("theirs", other)
    for run_id, kind in (("mine", PAUSE), ("theirs", CANCEL), ("mine", INTERRUPT), ("mine", CANCEL)):
        await kit.ask(run_id, kind)
    rows = await kit.store.controls(worker, after=0)
    assert [row.kind for row in rows] == [PAUSE, INTERRUPT, CANCEL]
    assert await kit.store.controls(worker, after=rows[0].id) == rows[1:]
    assert await kit.store.controls(worker, after=rows[-1].id) == []


async def a_paused_run_ignores_its_timer(kit: Kit) -> None:
    """Until it is resumed."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.let_go(worker, run, Status.WAITING, waiting_on="timer", ready_at=kit.world.time + 1)
    await kit.ask("r", PAUSE)
    kit.world.advance(5)
    assert await kit.claim(worker) == []
    assert await kit.store.next_ready(["a"]) is None


async def a_terminated_run_is_not_written(kit: Kit) -> None:
    """Whoever held it before."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.let_go(worker, run, Status.QUEUED, ready_at=kit.world.time)
    await kit.ask("r", TERMINATE)
    assert await kit.write(worker, run, begun(), seq=3) is Verdict.FENCED


PROMISES: Final = (
    *(_row_of(kind) for kind in ControlKind),
    a_request_for_no_run_is_not_found,
    terminating_leaves_a_record,
    cancelling_a_run_that_never_began_leaves_no_record,
    cancelling_settles_all_requests,
    resume_takes_back_a_pause_nobody_acted_on,
    resume_takes_back_a_pause_of_a_dead_worker,
    resuming_twice_changes_nothing_more,
    retrying_clears_the_end,
    requests_are_told_in_order,
    a_paused_run_ignores_its_timer,
    a_terminated_run_is_not_written,
)
