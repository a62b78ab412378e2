"""A run that leaves memory: its coroutines are closed, and nothing they do has an effect or can be heard (design
1.6.7)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import subprocess
import sys
import warnings
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import agent, step
from perdure.base import limits
from perdure.errors import Suspend
from perdure.kernel import loop as loop_module
from perdure.kernel.activation import Activation
from perdure.kernel.spec import input_of
from perdure.testing.replay import play

ROOT = Path(__file__).resolve().parents[3]
did: list[Any] = []
CLOSED: list[str] = []


@step
async def act(what: str) -> str:
    did.append(what)
    return what


@step
def act_plainly(what: str) -> str:
    did.append(what)
    return what


def waiting(agent: Any, run_id: str = "r") -> Activation:
    activation = Activation(run_id, agent.spec, input_of((), {}))
    activation.begin(1_000.0, 1)
    activation.take()
    return activation


@pytest.fixture
def quiet(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Nothing may be heard: no log, no warning, no word on stderr, no unraisable exception."""
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    caplog.set_level(logging.DEBUG)
    did.clear()
    CLOSED.clear()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in heard] == []
    assert unraisable == []
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")
    assert did == []


@agent
async def evicted_busy() -> None:
    never_awaited = [act("never awaited") for _ in range(3)]

    async def child(name: str) -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            await act("on cancel")
        finally:
            CLOSED.append(name)
            await act("cleanup")
            await asyncio.sleep(1)

    async def generator() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            CLOSED.append("generator")
            await act("closing a generator")

    @contextlib.asynccontextmanager
    async def resource() -> AsyncIterator[None]:
        try:
            yield
        finally:
            CLOSED.append("manager")
            await act("releasing")

    tasks = [asyncio.create_task(child(name)) for name in ("first", "second")]
    abandoned = generator()
    await anext(abandoned)
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(ValueError("nobody looks"))
    lost = asyncio.gather(act("gathered"), asyncio.sleep(3))
    async with resource(), asyncio.TaskGroup() as group:
        group.create_task(child("third"))
        try:
            await asyncio.sleep(1_000)
        except BaseException:
            await act("whatever happens")
            raise
    del never_awaited, tasks, lost


def test_what_cleanup_asks_for_is_refused_and_unheard(quiet: None) -> None:
    """`finally`, `except`, managers, generators, forgotten coroutines and futures: no record, no step, no noise."""
    activation = waiting(evicted_busy)
    activation.drop()
    assert activation.take() == ([], [], [])
    assert activation.open == {}


def test_coroutines_are_closed_in_creation_order() -> None:
    """The agent's function first, then its tasks as they were made, then its generators."""
    CLOSED.clear()
    waiting(evicted_busy).drop()
    assert CLOSED == ["manager", "first", "second", "third", "generator"]


def _stubborn(name: str, what: Any) -> Any:
    async def stubborn() -> None:
        while True:
            try:
                await what()
            except BaseException:
                continue

    return agent(name=f"stubborn_{name}")(stubborn)


async def _sleeps() -> None:
    await asyncio.sleep(1)


async def _group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_sleeps())


async def _timeout() -> None:
    async with asyncio.timeout(3):
        await act("in time")


STUBBORN = {
    "sleep": lambda: asyncio.sleep(1_000),
    "yield": lambda: asyncio.sleep(0),
    "step": lambda: act("again"),
    "task": lambda: asyncio.create_task(_sleeps()),
    "gather": lambda: asyncio.gather(_sleeps(), act("again")),
    "wait_for": lambda: asyncio.wait_for(act("again"), 3),
    "shield": lambda: asyncio.shield(_sleeps()),
    "group": _group,
    "timeout": _timeout,
    "event": lambda: asyncio.Event().wait(),
}
AGENTS = {name: _stubborn(name, what) for name, what in STUBBORN.items()}


@pytest.mark.parametrize("name", [name for name in STUBBORN if name != "yield"])
def test_a_coroutine_that_catches_everything_leaves_too(quiet: None, name: str) -> None:
    """`except BaseException: continue` in an endless loop is left waiting; the worker goes on."""
    activation = waiting(AGENTS[name])
    activation.drop()
    assert activation.take() == ([], [], [])


def test_a_stubborn_coroutine_would_spin_for_ever_if_it_were_only_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6.7: with nothing but exceptions it never gives control back; here the loop counts how often it comes again."""
    monkeypatch.setattr(limits, "suspensions_max", 10**9)
    seen: list[int] = []

    class Enough(Exception):
        pass

    def count(self: Any) -> None:
        seen.append(1)
        if len(seen) > 20_000:
            monkeypatch.undo()
        raise Suspend.make()

    monkeypatch.setattr(loop_module.RunLoop, "suspend", count)
    waiting(AGENTS["sleep"]).drop()
    assert len(seen) > 20_000


@agent
async def evicted_in_a_cycle() -> None:
    coroutine_in_a_cycle: list[Any] = [act("never awaited")]
    coroutine_in_a_cycle.append(coroutine_in_a_cycle)
    try:
        raise ValueError("with a traceback that holds this frame")
    except ValueError as error:
        kept = error
    try:
        await asyncio.sleep(1_000)
    finally:
        await act(f"cleanup after {kept}")


def test_what_lies_in_cycles_is_collected_without_a_word(quiet: None) -> None:
    """The collector finds frames, tracebacks and steps that were never awaited: it runs nothing and says nothing."""
    activation = waiting(evicted_in_a_cycle)
    gone = weakref.ref(activation.loop)
    activation.drop()
    del activation
    gc.collect()
    assert gone() is None


async def acting() -> AsyncIterator[str]:
    try:
        yield await act("in a generator")
    finally:
        CLOSED.append("generator")
        await act("closing a generator")


class Acting:
    """An awaitable of the user's own: asyncio wraps it into a generator, not into a coroutine."""

    def __await__(self) -> Any:
        return act("awaitable").__await__()


@agent
async def evicted_in_async_for() -> None:
    async for _ in acting():
        pass


@agent
async def evicted_in_nested_generators() -> None:
    async def outer() -> AsyncIterator[str]:
        async with contextlib.aclosing(acting()) as inner:
            async for each in inner:
                yield each

    await anext(outer(), None)


@agent
async def evicted_while_closing_a_generator() -> None:
    generator = acting()
    task = asyncio.create_task(anext(generator))
    await asyncio.sleep(0)
    task.cancel()
    await task


@agent
async def evicted_in_awaitables() -> None:
    await asyncio.gather(Acting(), Acting())


@pytest.mark.parametrize(
    "made",
    [
        evicted_in_async_for,
        evicted_in_nested_generators,
        evicted_while_closing_a_generator,
        evicted_in_awaitables,
    ],
    ids=lambda made: made.spec.name,
)
def test_generators_that_wait_and_awaitables_leave_nothing_behind(quiet: None, made: Any) -> None:
    """What waits inside an async generator, or in an awaitable that is no coroutine, is closed like all the rest: no
    frame is kept."""
    CLOSED.clear()
    activation = waiting(made)
    gone = weakref.ref(activation.loop)
    activation.drop()
    assert activation.take() == ([], [], [])
    assert len(CLOSED) == (0 if made is evicted_in_awaitables else 1)
    del activation
    gc.collect()
    assert gone() is None


@agent
async def evicted_cleanup() -> None:
    try:
        await asyncio.sleep(1_000)
    finally:
        await act("cleanup of a dropped run")


@agent
async def evicted_collector() -> None:
    gc.collect()
    await act("its own step")


def test_another_runs_journal_stays_its_own() -> None:
    """When the collector runs in the middle of another run, nothing of the dropped one appears there."""
    activation = waiting(evicted_cleanup)
    activation.drop()
    del activation
    assert play(evicted_collector).asked == [(1, "act")]


def test_left_to_the_collector_cleanup_lands_in_another_runs_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6.7: without closing coroutines explicitly, the dropped run's cleanup step becomes a record of the run
    that executes then."""
    monkeypatch.setattr(loop_module, "close_all", lambda tasks, generators: [_forget(task) for task in tasks])
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    gc.collect()
    gc.disable()
    try:
        activation = waiting(evicted_cleanup)
        activation.cycle = activation  # type: ignore[attr-defined]  # kept until the collector comes
        activation.loop.drop()
        del activation
        asked = play(evicted_collector, script=None).asked
    finally:
        gc.enable()
    assert len(asked) == 2


def _forget(task: Any) -> None:
    task._log_destroy_pending = False


@agent
async def evicted_speaking() -> None:
    from perdure import run

    try:
        await asyncio.sleep(1_000)
    finally:
        for ask in (
            run.now,
            run.uuid,
            lambda: run.random,
            lambda: run.patched("x"),
            lambda: run.progress(1),
            lambda: run.note,
        ):
            try:
                ask()
            except Suspend:
                CLOSED.append("refused")


def test_every_call_on_a_dropped_run_is_refused(quiet: None) -> None:
    """1.6.7: a dying coroutine gets no time, no number, no note, and leaves no patch and no progress."""
    activation = waiting(evicted_speaking)
    activation.drop()
    assert CLOSED == ["refused"] * 6
    assert activation.take()[0] == []
    assert activation.progress is None


PROGRAM = """
import asyncio, gc, sys
sys.path.insert(0, sys.argv[2])
from perdure import Perdure
from perdure.base import limits
from tests.unit.kernel import test_eviction as agents

limits.idle_stay_s = 0.01

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # the machine may be busy
    async with Perdure(sys.argv[1]) as app:
        evicted = (agents.evicted_cleanup, agents.evicted_in_a_cycle, agents.AGENTS["sleep"])
        handles = [await app.start(agent) for agent in evicted]
        for handle in handles:
            while await handle.status() != "waiting":
                await asyncio.sleep(0.002)
        while app.worker.running:
            await asyncio.sleep(0.002)
        gc.collect()
        print([len(await handle.history()) for handle in handles], agents.did)

asyncio.run(main())
gc.collect()
"""


def test_a_worker_that_lets_runs_go_is_silent(tmp_path: Path) -> None:
    """1.6.7: a real process in development mode with all warnings on, runs evicted and the collector run: not a
    word on stderr."""
    command = [sys.executable, "-X", "dev", "-W", "always", "-c", PROGRAM, str(tmp_path / "perdure.db"), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[2, 2, 2] []\n"
