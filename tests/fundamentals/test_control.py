"""Control: what a person may ask of a run, and what is certain once it is accepted."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.fundamentals.conftest import kinds, steps, until

from perdure import Conflict, NotFound, Perdure, RunCancelled, RunFailed, agent, run, step

did: list[Any] = []
gate = threading.Event()


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    did.clear()
    gate.clear()


@step
async def work(what: Any) -> Any:
    did.append(what)
    return what


@step
def work_slowly(what: str) -> str:
    did.append(what)
    gate.wait(20)
    return what


@step
async def wait_for_ever() -> None:
    did.append("waiting")
    await asyncio.Event().wait()


# Starting


@agent
async def control_once(what: str) -> str:
    return await work(what)


apps: list[Any] = []


@agent
async def control_opens() -> None:
    async with Perdure("another.db"):
        pass


@agent
async def control_starts() -> None:
    await apps[-1].start(control_starts)


@agent
async def control_waits() -> None:
    await apps[-1].get("somebody").result()


@pytest.mark.parametrize("code", [control_opens, control_starts, control_waits])
def test_agent_code_reaches_other_runs_through_steps(durably: Any, code: Any, tmp_path: Any, monkeypatch: Any) -> None:
    """What an app or a handle does in agent code would be done again on replay: refused, with the line."""
    monkeypatch.chdir(tmp_path)

    async def main(app: Any) -> None:
        apps.append(app)
        with pytest.raises(RunFailed, match=r"HiddenState: .*test_control.py:\d+: agent code .* Move it into a @step"):
            await (await app.start(code)).result()
        assert len(await app.list()) == 1
        assert not (tmp_path / "another.db").exists()

    durably(main)


def test_the_same_id_is_the_same_run(durably: Any) -> None:
    """Starting twice by one `id` gives one run; with other arguments it is a conflict, as is another agent."""

    async def main(app: Any) -> None:
        first = await app.start(control_once, "tides", id="tides-1")
        assert await first.result() == "tides"
        again = await app.start(control_once, "tides", id="tides-1")
        assert await again.result() == "tides"
        assert did == ["tides"]
        with pytest.raises(Conflict, match="other arguments"):
            await app.start(control_once, "moons", id="tides-1")
        with pytest.raises(Conflict, match="belongs to agent"):
            await app.start(control_notes, id="tides-1")
        with pytest.raises(NotFound):
            await app.get("no such run")

    durably(main)


def test_a_client_starts_runs_that_a_worker_takes_up_later(durably: Any) -> None:
    """`worker=False`: the run is durable when `start` returns, and is executed when a worker comes."""

    async def ask(app: Any) -> None:
        assert await (await app.start(control_once, "later", id="c")).status() == "queued"

    async def serve(app: Any) -> None:
        assert await app.get("c").result() == "later"

    durably(ask, worker=False)
    assert did == []
    durably(serve)


# Pause and resume


@agent
async def control_notes() -> list[Any]:
    seen = [run.note]
    seen.append(await work_slowly("first"))
    seen.append(run.note)
    seen.append(await work("second"))
    return seen


def test_a_paused_run_starts_nothing_and_resume_may_bring_a_note(durably: Any) -> None:
    """The step that runs is finished and recorded; nothing starts until `resume`, whose note the agent reads as
    `run.note`."""

    async def main(app: Any) -> None:
        handle = await app.start(control_notes)
        while did != ["first"]:
            await asyncio.sleep(0.002)
        await handle.pause()
        gate.set()
        await until(handle, "paused")
        assert did == ["first"]
        assert ("work_slowly", 1, "executed") in await steps(handle)
        await handle.resume(note="go on, quietly")
        assert (await handle.result())[::3] == [None, "second"]
        assert "note" in await kinds(handle)

    durably(main)


@agent
async def control_reads_notes() -> str | None:
    await asyncio.sleep(0.01)
    while run.note is None:
        await asyncio.sleep(0.01)
    return run.note


def test_a_note_is_there_from_the_moment_it_is_recorded(durably: Any) -> None:
    """Also when the run was paused in the middle of a wait, and the program ended meanwhile."""

    async def first(app: Any) -> None:
        handle = await app.start(control_reads_notes, id="n")
        await handle.pause()
        await until(handle, "paused")

    async def second(app: Any) -> None:
        await app.get("n").resume(note="it is time")
        assert await app.get("n").result() == "it is time"

    durably(first)
    durably(second)


# Cancel


@agent
async def control_cleanup(slow: bool) -> str:
    await work("begin")
    try:
        await (work_slowly("slow") if slow else wait_for_ever())
        await work("never")
    finally:
        await work("cleanup")
    return "never"


@pytest.mark.parametrize("slow", [True, False])
def test_cancelling_runs_the_cleanup_steps(durably: Any, slow: bool) -> None:
    """Cancellation enters the agent as `CancelledError` where it waits; `finally` may await steps, then the run is
    cancelled.

    A step in a thread cannot be stopped: its outcome is recorded first, whatever it is.
    """

    async def main(app: Any) -> None:
        handle = await app.start(control_cleanup, slow)
        while len(did) < 2:
            await asyncio.sleep(0.002)
        await handle.cancel()
        if slow:
            assert await handle.status() == "running"
            gate.set()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert did == ["begin", "slow" if slow else "waiting", "cleanup"]
        assert [state for _, _, state in await steps(handle)] == ["executed"] * 3

    durably(main)


@agent
async def control_asleep() -> None:
    try:
        await asyncio.sleep(1_000)
    finally:
        await work("cleanup")


def test_cancelling_a_run_that_sleeps_wakes_it_for_its_cleanup(durably: Any) -> None:
    """The run is not in memory: it is taken up, gets its cancellation, executes its cleanup and ends."""

    async def main(app: Any) -> None:
        handle = await app.start(control_asleep)
        await until(handle, "waiting")
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert did == ["cleanup"]

    durably(main)


@agent
async def control_refuses() -> str:
    try:
        await asyncio.sleep(1_000)
    except asyncio.CancelledError:
        return await work("finished my way")
    return "never"


def test_an_agent_may_answer_a_cancellation_with_a_result(durably: Any) -> None:
    """As on any loop: who catches `CancelledError` and returns has completed."""

    async def main(app: Any) -> None:
        handle = await app.start(control_refuses)
        await until(handle, "waiting")
        await handle.cancel()
        assert await handle.result() == "finished my way"

    durably(main)


def test_terminating_ends_a_run_without_its_cleanup(durably: Any) -> None:
    """`terminate` is for a run whose code cannot be trusted any more: it is cancelled at once, nothing of it runs."""

    async def main(app: Any) -> None:
        handle = await app.start(control_asleep)
        await until(handle, "waiting")
        await handle.terminate()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert did == []

    durably(main)


@agent
async def control_interrupted() -> str:
    try:
        await wait_for_ever()
    except Exception as exc:
        return type(exc).__name__
    return "never"


def test_interrupting_ends_the_step_and_not_the_run(durably: Any) -> None:
    """The agent gets an error for the step that ran and goes on."""

    async def main(app: Any) -> None:
        handle = await app.start(control_interrupted)
        while not did:
            await asyncio.sleep(0.002)
        await handle.interrupt()
        assert await handle.result() == "StepError"

    durably(main)
