"""Threads for plain functions: blocking code never blocks the worker's loop.

T1. Threads are daemons: a function that never returns cannot keep the interpreter from exiting.
    (So not concurrent.futures: it joins its threads at exit, and its workers cannot be given up.)
T2. Every job settles its future at most once, on the future's own loop; with that loop closed or the future
    cancelled, the late result is dropped in silence.
T3. A job cancelled before its turn is never started; `StepFuture.started` tells the two apart.
T4. A thread whose job was cancelled while running is given up: another may take its place, up to `abandoned_max`, so
    that functions that hang do not use up the pool. It ends by itself when its function returns.
T5. As many threads serve as there are jobs, up to `threads_max`; more jobs queue.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from perdure.base import limits
from perdure.errors import RetryLater, UsageError
from perdure.rules.step_endings import as_failure

T = TypeVar("T")
_ABANDONED_MAX = 4 * limits.threads_max


class _Stage(Enum):
    QUEUED = auto()
    RUNNING = auto()
    ABANDONED = auto()
    OVER = auto()


class StepFuture(asyncio.Future[T], Generic[T]):
    """The future of a job in a thread. Cancelling it gives the job up."""

    def __init__(
        self, pool: ThreadPool, fn: Callable[[], T], context: Context, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)
        self.pool = pool
        self.fn: Callable[[], T] | None = fn
        self.context: Context | None = context
        self.stage = _Stage.QUEUED
        self.started = False

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        self.pool.give_up(self)
        return True


class ThreadPool:
    """Runs plain functions in daemon threads, for the loop that asks."""

    def __init__(self, threads_max: int = limits.threads_max, *, abandoned_max: int = _ABANDONED_MAX) -> None:
        if threads_max < 1 or abandoned_max < 0:
            raise UsageError(f"A pool needs 1 thread or more, not {threads_max} (and 0 abandoned ones or more).")
        self._threads_max = threads_max
        self._abandoned_max = abandoned_max
        self._queue: SimpleQueue[StepFuture[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._waiting = 0
        self._running = 0
        self._abandoned = 0
        self._closed = False

    @property
    def busy(self) -> int:
        """Functions that are executing now, abandoned ones included."""
        return self._running + self._abandoned

    @property
    def backlog(self) -> int:
        """Jobs that wait for a thread."""
        return self._waiting

    @property
    def abandoned(self) -> int:
        """Functions that still execute although nobody waits for them (T4)."""
        return self._abandoned

    def run(self, fn: Callable[[], T], context: Context) -> StepFuture[T]:
        """Run `fn` in `context` in a thread. Must be called on a running loop, which gets the result."""
        job = StepFuture(self, fn, context, loop=asyncio.get_running_loop())
        with self._lock:
            if self._closed:
                raise UsageError("The thread pool is closed: the worker has stopped. Start the app again.")
            self._waiting += 1
            grow = self._reserve_thread()
        if grow and not self._start_thread():
            with self._lock:
                self._waiting -= 1
                job.stage = _Stage.OVER
            raise RetryLater("No thread could be started. The step was not begun; it is tried again.")
        self._queue.put(job)
        return job

    def close(self) -> None:
        """Take no more jobs, cancel those that wait, let idle threads end. Waits for nothing, so not for hung ones."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads = self._threads
        with suppress(Empty):
            while (job := self._queue.get_nowait()) is not None:
                with suppress(RuntimeError):  # T2: its loop is closed
                    job.get_loop().call_soon_threadsafe(job.cancel)
        for _ in range(threads):
            self._queue.put(None)

    def give_up(self, job: StepFuture[Any]) -> None:
        """Called by a job that was cancelled."""
        with self._lock:
            if job.stage is _Stage.QUEUED:
                self._waiting -= 1
                job.stage = _Stage.OVER  # T3
            elif job.stage is _Stage.RUNNING:
                self._running -= 1
                self._abandoned += 1
                job.stage = _Stage.ABANDONED
            grow = self._reserve_thread()
        if grow:
            self._start_thread()

    def _reserve_thread(self) -> bool:
        """Whether one thread more is needed (T5), and if so count it; under the lock."""
        serving = self._threads - self._abandoned
        wanted = min(self._waiting + self._running, self._threads_max)
        if self._closed or serving >= wanted or self._threads >= self._threads_max + self._abandoned_max:
            return False
        self._threads += 1
        return True

    def _start_thread(self) -> bool:
        """Start the thread that was counted; False if the system has none and no other serves."""
        try:
            threading.Thread(target=self._serve, name="perdure-step", daemon=True).start()  # T1
        except RuntimeError:
            with self._lock:
                self._threads -= 1
                return self._threads > self._abandoned
        return True

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            if self._begin(job):
                value, failure = _work(job)
                staying = self._end(job)  # before its result is known: who awaited it finds this thread idle
                with suppress(RuntimeError):  # T2: the loop is closed
                    job.get_loop().call_soon_threadsafe(_settle, job, value, failure)
                if not staying:
                    return
                del value, failure
            del job  # an idle thread keeps nothing alive
        with self._lock:
            self._threads -= 1

    def _begin(self, job: StepFuture[Any]) -> bool:
        with self._lock:
            if job.stage is not _Stage.QUEUED:
                return False
            job.stage = _Stage.RUNNING
            job.started = True
            self._waiting -= 1
            self._running += 1
            return True

    def _end(self, job: StepFuture[Any]) -> bool:
        """Count the job out, and the thread too (False) if it is one too many (T4)."""
        with self._lock:
            if job.stage is _Stage.ABANDONED:
                self._abandoned -= 1
            else:
                self._running -= 1
            job.stage = _Stage.OVER
            staying = self._threads - self._abandoned <= self._threads_max
            self._threads -= not staying
            return staying


def _work(job: StepFuture[T]) -> tuple[T | None, Exception | None]:
    fn, context = job.fn, job.context
    job.fn = job.context = None
    assert fn is not None
    assert context is not None
    del job  # the traceback's frames lead back to this one
    try:
        return context.run(fn), None
    except BaseException as raised:  # noqa: BLE001 - whatever a step raises is its failure, never the thread's end
        # Our own frame would keep the job alive, and tells the user nothing.
        return None, as_failure(raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next))


def _settle(job: StepFuture[Any], value: object, failure: Exception | None) -> None:
    if job.done():
        return  # T2
    if failure is None:
        job.set_result(value)
    else:
        job.set_exception(failure)
