"""Time: a run that waits costs nothing, and wakes up wherever a worker is."""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from tests.fundamentals.conftest import kinds, steps, until

from perdure import RunFailed, agent, run, step
from perdure.base import limits

did: list[Any] = []
gate = threading.Event()


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    did.clear()
    gate.clear()


@step
async def note(what: Any) -> Any:
    did.append(what)
    return what


@step
def send_slowly(what: str) -> str:
    did.append(what)
    gate.wait(20)
    return f"sent {what}"


@step
async def send_for_ever(what: str) -> str:
    did.append(what)
    await asyncio.Event().wait()
    return "never"


@step(effect="read")
async def read_for_ever() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        did.append("the read was let go")


@step(effect="once")
async def send_once_for_ever(what: str) -> str:
    did.append(what)
    await asyncio.Event().wait()
    return "never"


@agent
async def time_sleeps(seconds: float) -> list[Any]:
    began = run.now()
    await note("before")
    await asyncio.sleep(seconds)
    await note("after")
    return (run.now() - began).total_seconds() >= seconds


def test_a_sleep_is_an_entry_in_the_journal(durably: Any) -> None:
    """`asyncio.sleep` in an agent is durable: the timer's end is recorded like a result, and `run.now()` moves
    with it."""

    async def main(app: Any) -> None:
        handle = await app.start(time_sleeps, 0.01)
        assert await handle.result() is True
        assert await kinds(handle) == ["begin", "step", "timer", "step", "end"]

    durably(main)


def test_a_sleep_survives_the_program(durably: Any) -> None:
    """A run that sleeps is a row with the time it wakes at. The program may end; started again, it goes on where
    the run was."""

    async def first(app: Any) -> None:
        handle = await app.start(time_sleeps, 0.8, id="s")
        view = await until(handle, "waiting", waiting_on="timer")
        assert view.ready_at is not None
        assert app.worker.running == {}, "a waiting run is not in memory"

    async def second(app: Any) -> None:
        assert await app.get("s").result() is True
        assert did == ["before", "after"]

    durably(first)
    durably(second)


@agent
async def time_sleeps_for_ever(seconds: float) -> None:
    async with asyncio.timeout(math.inf):
        await asyncio.sleep(seconds)


@pytest.mark.parametrize("seconds", [math.inf, 1e18])
def test_a_sleep_without_end_is_shown_as_the_end_of_the_calendar(durably: Any, seconds: float) -> None:
    """`asyncio.sleep(math.inf)` waits for ever; the run and the list of runs can still be looked at, and it can be
    cancelled."""

    async def main(app: Any) -> None:
        handle = await app.start(time_sleeps_for_ever, seconds)
        view = await until(handle, "waiting", waiting_on="timer")
        assert view.ready_at == "9999-12-31T23:59:59.000Z"
        assert len(await app.list()) == 1
        assert "timer" not in await kinds(handle)
        await handle.cancel()
        await until(handle, "cancelled")

    durably(main)


def test_a_sleep_of_no_number_of_seconds_is_refused(durably: Any) -> None:
    """A NaN never falls due: it is the mistake of the line that sleeps."""

    async def main(app: Any) -> None:
        with pytest.raises(RunFailed, match="ValueError: Invalid delay: NaN"):
            await (await app.start(time_sleeps, math.nan)).result()

    durably(main)


@agent
async def time_out(what: str) -> str:
    try:
        match what:
            case "sleep":
                await asyncio.wait_for(asyncio.sleep(60), 0.01)
            case "read":
                await asyncio.wait_for(read_for_ever(), 0.01)
            case "effect":
                async with asyncio.timeout(0.01):
                    await send_for_ever(what)
    except TimeoutError:
        return "timeout"
    return "in time"


@pytest.mark.parametrize("what", ["sleep", "read", "effect"])
def test_timeouts_are_durable(durably: Any, what: str) -> None:
    """`wait_for` and `timeout` cancel what takes too long: a read is let go at once, an effect is asked to stop
    and recorded as cancelled."""

    async def main(app: Any) -> None:
        handle = await app.start(time_out, what)
        assert await handle.result() == "timeout"
        history = [(entry.name, entry.state, entry.detail) for entry in await handle.history() if entry.kind == "step"]
        assert (
            history
            == {
                "sleep": [],
                "read": [("read_for_ever", "decided", None)],
                "effect": [("send_for_ever", "executed", "cancelled")],
            }[what]
        )
        assert did == {"sleep": [], "read": ["the read was let go"], "effect": ["effect"]}[what]

    durably(main)


@agent
async def time_send() -> str:
    try:
        return await asyncio.wait_for(send_slowly("the letter"), 1.0)
    except TimeoutError:
        return await send_slowly("the letter, again")


def test_a_timeout_does_not_make_an_effect_happen_twice(durably: Any) -> None:
    """1.6.9: a thread cannot be stopped. `wait_for` waits for its outcome, and the agent gets the result instead
    of sending again."""

    async def main(app: Any) -> None:
        handle = await app.start(time_send)
        while "timer" not in await kinds(handle):
            await asyncio.sleep(0.002)
        assert (await handle.status()) == "running"
        gate.set()
        assert await handle.result() == "sent the letter"
        assert did == ["the letter"]

    durably(main)


@agent
async def time_once() -> str:
    try:
        return await asyncio.wait_for(send_once_for_ever("dear sir"), 1.0)
    except TimeoutError:
        return "timeout"


def test_a_once_step_that_was_stopped_half_way_needs_a_person(durably: Any) -> None:
    """1.6.9: nobody knows whether it happened. The run parks instead of telling the agent that it did not."""

    async def main(app: Any) -> None:
        handle = await app.start(time_once)
        await until(handle, "parked", reason="in_doubt")
        await handle.resolve(1, done="it had arrived")
        await until(handle, "completed")
        assert await handle.result() == "it had arrived"
        assert did == ["dear sir"]

    durably(main)


@agent
async def time_race() -> list[str]:
    won = []
    for n in range(5):
        timer = asyncio.create_task(asyncio.sleep(0.003, "timer"))
        result = asyncio.create_task(note(f"result {n}"))
        done, pending = await asyncio.wait({timer, result}, return_when=asyncio.FIRST_COMPLETED)
        won.append(min(task.result() for task in done))
        await asyncio.gather(*pending)
        await asyncio.sleep(limits.idle_stay_s + 0.05 if n == 2 else 0)
    return won


def test_a_race_between_timer_and_result_is_decided_once(durably: Any) -> None:
    """1.6.1: the run leaves memory in the middle and is replayed; who won is on record and stays so."""

    async def main(app: Any) -> None:
        handle = await app.start(time_race)
        assert len(await handle.result()) == 5
        assert "wait" in await kinds(handle)
        assert did == [f"result {n}" for n in range(5)]

    durably(main)


@agent
async def time_sources() -> list[Any]:
    first = [run.uuid(), run.random.random(), run.now()]
    await note("between")
    await asyncio.sleep(limits.idle_stay_s + 0.05)
    await note(str(first[0]))
    return [str(first[0]), first[1], first[2].isoformat()]


def test_clock_randomness_and_ids_are_the_runs_own(durably: Any) -> None:
    """`run.now()`, `run.random` and `run.uuid()` give the same when the run is taken up again; what a step got
    from them still fits."""

    async def main(app: Any) -> None:
        handle = await app.start(time_sources)
        uuid, number, now = await handle.result()
        assert UUID(uuid).version == 4
        assert 0 <= number < 1
        assert datetime.fromisoformat(now).utcoffset() is not None
        assert did == ["between", uuid]

    durably(main)


@agent
async def time_progress() -> str:
    for n in range(1, 4):
        run.progress(n, 4, f"part {n}")
        await note(n)
    await asyncio.sleep(60)
    return "never"


def test_progress_is_seen_from_outside(durably: Any) -> None:
    """`run.progress(done, total, current)` shows in the run's view, also while the run waits."""

    async def main(app: Any) -> None:
        handle = await app.start(time_progress)
        view = await until(handle, "waiting")
        assert {name: view.progress[name] for name in ("done", "total", "percent", "current")} == {
            "done": 3,
            "total": 4,
            "percent": 75.0,
            "current": "part 3",
        }

    durably(main)


def test_open_decisions_that_nobody_waits_for_are_not_taken_up_again(durably: Any) -> None:
    """1.6.9: the abandoned read is in the journal without an outcome; when the run is taken up again it stays alone."""

    async def main(app: Any) -> None:
        handle = await app.start(time_abandons)
        assert await handle.result() == "end"
        assert did == ["the read was let go"]
        assert [state for name, _, state in await steps(handle) if name == "read_for_ever"] == ["decided"]

    durably(main)


@agent
async def time_abandons() -> str:
    try:
        await asyncio.wait_for(read_for_ever(), 0.01)
    except TimeoutError:
        await asyncio.sleep(limits.idle_stay_s + 0.05)
    return "end"
