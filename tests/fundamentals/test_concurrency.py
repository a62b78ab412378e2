"""Many things at once: asyncio's own tools, with results in the right places after any interruption."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.fundamentals.conftest import steps

from perdure import RunFailed, StepError, agent, step
from perdure.base import limits

did: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    did.clear()


@step
async def work(what: Any) -> Any:
    did.append(what)
    await asyncio.sleep(0.001)
    return what


@step
async def fail(what: str) -> None:
    did.append(what)
    raise ValueError(what)


@step
async def wait_for_ever() -> None:
    did.append("waiting")
    await asyncio.Event().wait()


@agent
async def many_gathered() -> list[Any]:
    return await asyncio.gather(*(work(n) for n in range(10)))


def test_gather_runs_steps_side_by_side(durably: Any) -> None:
    """All ten are decided before the first is done; results stand in the order of the call."""

    async def main(app: Any) -> None:
        handle = await app.start(many_gathered)
        assert await handle.result() == list(range(10))
        assert await steps(handle) == [("work", n, "executed") for n in range(1, 11)]

    durably(main)


@agent
async def many_group() -> list[Any]:
    seen: list[Any] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_ever())
            group.create_task(fail("one of them"))
    except* StepError as errors:
        seen += [exc.message for exc in errors.exceptions]
    return seen


def test_a_failure_in_a_task_group_stops_the_others(durably: Any) -> None:
    """The step beside the failing one is cancelled, which is recorded; the group raises what failed."""

    async def main(app: Any) -> None:
        handle = await app.start(many_group)
        assert await handle.result() == ["one of them"]
        details = {entry.name: entry.detail for entry in await handle.history() if entry.kind == "step"}
        assert details == {"wait_for_ever": "cancelled", "fail": None}

    durably(main)


@agent
async def many_evicted() -> list[Any]:
    order: list[Any] = []

    async def branch(n: int) -> Any:
        await asyncio.sleep(limits.idle_stay_s + 0.3 - n / 10)
        order.append(n)
        first = await work(n)
        await asyncio.sleep(0.001)
        return [first, await work(f"{n} again")]

    results = await asyncio.gather(*(branch(n) for n in range(3)))
    return [order, results]


def test_branches_keep_their_results_when_the_run_has_left_memory(durably: Any) -> None:
    """Three branches sleep, wake in another order than they began, and each gets its own results."""

    async def main(app: Any) -> Any:
        return await (await app.start(many_evicted)).result()

    assert durably(main) == [[2, 1, 0], [[n, f"{n} again"] for n in range(3)]]
    assert sorted(map(str, did)) == sorted(["0", "1", "2", "0 again", "1 again", "2 again"])


@agent
async def many_leftovers() -> str:
    async def background() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            await work("cleanup of the background task")

    tasks = [asyncio.create_task(background())]
    await work("main")
    return f"done, {len(tasks)} left"


def test_tasks_left_running_are_settled_when_the_agent_returns(durably: Any) -> None:
    """1.6.14: as at the end of `asyncio.run`, they are cancelled; their cleanup steps are executed before the run
    has ended."""

    async def main(app: Any) -> None:
        handle = await app.start(many_leftovers)
        assert await handle.result() == "done, 1 left"
        assert did == ["main", "cleanup of the background task"]
        assert [state for _, _, state in await steps(handle)] == ["executed", "executed"]

    durably(main)


@agent
async def many_bounded() -> list[Any]:
    gate, jobs, results = asyncio.Semaphore(2), asyncio.Queue(), []
    for n in range(6):
        jobs.put_nowait(n)

    async def worker() -> None:
        while not jobs.empty():
            job = jobs.get_nowait()
            async with gate:
                results.append(await work(job))

    await asyncio.gather(*(worker() for _ in range(4)))
    return sorted(results)


def test_queues_and_semaphores_work_as_they_are(durably: Any) -> None:
    """Agent code needs no replacements for asyncio's own tools."""

    async def main(app: Any) -> Any:
        return await (await app.start(many_bounded)).result()

    assert durably(main) == list(range(6))


@agent
async def many_failed() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work("fine"))
        group.create_task(fail("not fine"))


def test_a_run_that_ends_with_a_group_of_errors_has_failed(durably: Any) -> None:
    """The error names the step that failed first, so that a retry knows where to go on."""

    async def main(app: Any) -> None:
        handle = await app.start(many_failed)
        with pytest.raises(RunFailed, match="unhandled errors"):
            await handle.result()
        assert (await handle.status()).view.error["step"] == "fail"

    durably(main)
