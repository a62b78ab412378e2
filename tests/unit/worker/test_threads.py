"""Threads for plain functions."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from perdure.errors import RetryLater, UsageError
from perdure.rules.step_endings import StepEscaped
from perdure.worker.threads import ThreadPool

T = TypeVar("T")
TOO_LONG_S = 60.0


def on_pool(scenario: Callable[[ThreadPool], Awaitable[T]], **options: int) -> T:
    """Run a scenario with a pool of its own, and close it."""

    async def main() -> T:
        pool = ThreadPool(**options)
        try:
            async with asyncio.timeout(TOO_LONG_S):
                return await scenario(pool)
        finally:
            pool.close()

    return asyncio.run(main())


def here() -> contextvars.Context:
    return contextvars.copy_context()


async def until(fact: Callable[[], bool]) -> None:
    """Wait for a fact that another thread makes true."""
    while not fact():
        await asyncio.sleep(0.001)


def threads_now() -> set[threading.Thread]:
    """Those that other tests left behind may end at any time: compare sets, not numbers."""
    return set(threading.enumerate())


class Gate:
    """A function that tells when it has begun and returns when it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.go.wait(TOO_LONG_S)
        return "went"


def test_a_function_runs_in_another_thread_and_its_value_comes_back() -> None:
    """The plain case."""

    async def scenario(pool: ThreadPool) -> tuple[int, int]:
        return await pool.run(threading.get_ident, here()), threading.get_ident()

    there, main = on_pool(scenario)
    assert there != main


def test_the_function_sees_the_context_it_was_given() -> None:
    """So `run.key` is readable in a plain function."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def scenario(pool: ThreadPool) -> str:
        context = here()
        context.run(variable.set, "given")
        return await pool.run(variable.get, context)

    assert on_pool(scenario) == "given"


def test_an_exception_comes_back_with_the_users_frames_only() -> None:
    """The traceback begins in the step's code after the frame that awaited it."""

    def fail() -> None:
        raise ValueError("bad")

    async def scenario(pool: ThreadPool) -> list[str]:
        with pytest.raises(ValueError, match="bad") as caught:
            await pool.run(fail, here())
        return [entry.name for entry in caught.traceback]

    assert on_pool(scenario) == ["scenario", "fail"]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration])
def test_what_would_stop_the_worker_is_an_ordinary_failure(kind: type[BaseException]) -> None:
    """A step that calls `sys.exit` fails; the loop and the pool go on."""

    def stop() -> None:
        raise kind

    async def scenario(pool: ThreadPool) -> str:
        with pytest.raises(StepEscaped) as caught:
            await pool.run(stop, here())
        assert isinstance(caught.value.__cause__, kind)
        return await pool.run(lambda: "still here", here())

    assert on_pool(scenario) == "still here"


def test_threads_are_started_on_demand_and_kept() -> None:
    """Sequential jobs share one thread."""

    async def scenario(pool: ThreadPool) -> set[int]:
        return {await pool.run(threading.get_ident, here()) for _ in range(20)}

    # A thread counts as idle when it has delivered, so the next job never finds it busy.
    assert len(on_pool(scenario)) == 1


def test_jobs_beyond_the_last_thread_queue() -> None:
    """T5: never more threads than allowed; the rest wait in order."""

    async def scenario(pool: ThreadPool) -> list[str]:
        gates = [Gate(), Gate()]
        blocked = [pool.run(gate, here()) for gate in gates]
        order: list[str] = []
        waiting = [pool.run(lambda name=name: order.append(name), here()) for name in "abc"]
        await until(lambda: all(gate.begun.is_set() for gate in gates))
        assert (pool.busy, pool.backlog) == (2, 3)
        assert not any(job.started for job in waiting)
        gates[0].go.set()
        await asyncio.gather(*waiting)
        gates[1].go.set()
        await asyncio.gather(*blocked)
        assert (pool.busy, pool.backlog) == (0, 0)
        return order

    assert on_pool(scenario, threads_max=2) == ["a", "b", "c"]


def test_a_job_cancelled_in_the_queue_never_starts() -> None:
    """T3: and its future says that nothing happened."""

    async def scenario(pool: ThreadPool) -> list[str]:
        gate, ran = Gate(), list[str]()
        blocked = pool.run(gate, here())
        waiting = pool.run(lambda: ran.append("ran"), here())
        await until(gate.begun.is_set)
        assert waiting.cancel()
        assert not waiting.started
        assert pool.backlog == 0
        gate.go.set()
        assert await blocked == "went"
        await pool.run(lambda: None, here())
        return ran

    assert on_pool(scenario, threads_max=1) == []


def test_a_cancelled_job_lets_its_awaiter_go_and_its_late_result_is_dropped() -> None:
    """T2: silently; nothing reaches the loop's exception handler."""

    async def scenario(pool: ThreadPool) -> None:
        complaints: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        gate = Gate()
        job = pool.run(gate, here())
        await until(gate.begun.is_set)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job, 0.001)
        assert job.started
        assert pool.abandoned == pool.busy == 1
        gate.go.set()
        await until(lambda: pool.busy == 0)
        await pool.run(lambda: None, here())
        assert complaints == []

    on_pool(scenario)


def test_functions_that_hang_do_not_use_up_the_pool() -> None:
    """T4: an abandoned thread is replaced at once, also for jobs that wait already; it ends when it returns."""

    async def scenario(pool: ThreadPool) -> None:
        before = threads_now()
        gates = [Gate() for _ in range(3)]
        for gate in gates:
            hung = pool.run(gate, here())
            await until(gate.begun.is_set)
            waiting = pool.run(lambda: "served", here())
            hung.cancel()
            assert await waiting == "served"
        assert (pool.busy, pool.abandoned) == (3, 3)
        for gate in gates:
            gate.go.set()
        await until(lambda: len(threads_now() - before) == 1)
        assert pool.busy == 0
        assert await pool.run(lambda: "served", here()) == "served"

    on_pool(scenario, threads_max=1)


def test_abandoned_threads_have_a_limit() -> None:
    """T4: beyond it jobs wait for one of them to return."""

    async def scenario(pool: ThreadPool) -> None:
        gates = [Gate(), Gate()]
        for gate in gates:
            hung = pool.run(gate, here())
            await until(gate.begun.is_set)
            hung.cancel()
        waiting = pool.run(lambda: "served", here())
        assert (pool.abandoned, pool.backlog) == (2, 1)
        gates[0].go.set()
        assert await waiting == "served"
        gates[1].go.set()

    on_pool(scenario, threads_max=1, abandoned_max=1)


def test_many_jobs_cancelled_at_random_leave_an_empty_pool() -> None:
    """The counts survive cancellations before, while and after the jobs run."""

    async def scenario(pool: ThreadPool) -> None:
        for turn in range(100):
            jobs = [pool.run(lambda: sum(range(2_000)), here()) for _ in range(10)]
            for job in jobs[turn % 10 :]:
                job.cancel()
            for job in jobs[: turn % 10]:
                await job
        await until(lambda: (pool.busy, pool.backlog) == (0, 0))
        assert await pool.run(lambda: "served", here()) == "served"

    on_pool(scenario, threads_max=3)


def test_close_cancels_what_waits_and_does_not_wait_for_what_hangs() -> None:
    """And a closed pool refuses work with a word on what to do."""

    async def scenario(pool: ThreadPool) -> None:
        gate = Gate()
        hung = pool.run(gate, here())
        waiting = pool.run(lambda: None, here())
        await until(gate.begun.is_set)
        pool.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not hung.done()
        with pytest.raises(UsageError, match="closed"):
            pool.run(lambda: None, here())
        gate.go.set()
        assert await hung == "went"

    on_pool(scenario, threads_max=1)


def test_idle_threads_end_when_the_pool_closes() -> None:
    """No thread is left behind."""
    before = threads_now()

    async def scenario(pool: ThreadPool) -> None:
        await asyncio.gather(*(pool.run(lambda: None, here()) for _ in range(4)))
        pool.close()
        await until(lambda: threads_now() <= before)

    on_pool(scenario)


def test_a_result_for_a_closed_loop_is_dropped() -> None:
    """T2: the thread survives it."""
    pool, gate = ThreadPool(threads_max=1), Gate()

    async def leave() -> None:
        pool.run(gate, here())
        await until(gate.begun.is_set)

    async def again() -> str:
        gate.go.set()
        return await pool.run(lambda: "served", here())

    asyncio.run(leave())
    assert asyncio.run(again()) == "served"
    pool.close()


def test_no_thread_to_be_had_is_said_before_the_step_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step was not begun, so it can be tried again under any rule."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario(pool: ThreadPool) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RetryLater, match="not begun"):
                pool.run(lambda: None, here())
        assert (pool.busy, pool.backlog) == (0, 0)
        assert await pool.run(lambda: "served", here()) == "served"

    on_pool(scenario)


def test_an_idle_thread_keeps_nothing_alive() -> None:
    """Arguments and results of a step are freed when it is over."""

    class Big:
        pass

    async def scenario(pool: ThreadPool) -> weakref.ref[Big]:
        job = functools.partial(isinstance, Big(), Big)
        seen = weakref.ref(job.args[0])
        assert await pool.run(job, here())
        del job
        await until(lambda: gc.collect() >= 0 and seen() is None)
        return seen

    assert on_pool(scenario)() is None


HUNG = """
import asyncio, contextvars, threading
from perdure.worker.threads import ThreadPool

async def main():
    pool, begun = ThreadPool(), threading.Event()

    def hang():
        begun.set()
        threading.Event().wait()

    job = pool.run(hang, contextvars.copy_context())
    while not begun.is_set():
        await asyncio.sleep(0.001)
    {cancel}
    pool.close()
    print("leaving", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("cancel", ["job.cancel()", "pass"])
def test_a_hung_function_does_not_keep_the_interpreter_from_exiting(cancel: str) -> None:
    """T1: cancelled or not."""
    source = HUNG.replace("{cancel}", cancel)
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=TOO_LONG_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")
