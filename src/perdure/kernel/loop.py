"""The event loop on which an agent's code runs: a ready queue and timers, nothing else.

J5. All that enters the loop is delivered by `deliver` or `fire`; between two deliveries the loop is quiet.

On this loop asyncio's own primitives are durable and deterministic: `time()` is the recorded time of the last delivery, a timer is an entry
the worker makes durable, and tasks and futures hash by a number of their own, so sets of them iterate in the same order in every process.

Things that don't work: the loop of the process with step numbers drawn from it (branches under `gather` swap their results on replay);
one thread per run (28 KB each, and no order at all); overriding asyncio's functions (code that imported them by name goes around).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import sys
from _thread import get_ident
from asyncio import _get_running_loop as get_running_loop
from asyncio import _set_running_loop as set_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any
from zlib import crc32

from perdure.base import limits
from perdure.errors import HiddenState, PerdureError, Suspend
from perdure.kernel import order
from perdure.kernel.generators import first_iteration, watch_generators
from perdure.kernel.guard.marks import mark, unmark
from perdure.kernel.leaving import close_all
from perdure.kernel.source import agent_line, waiting_line

log = logging.getLogger("perdure.agent")

order.install()


class _Handle:
    """A callback that will run when the loop is pumped. Lean: one is made for every resumption of a task."""

    __slots__ = ("_cancelled", "args", "callback", "context")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled


class _Timer(_Handle):
    __slots__ = ("due", "number")

    def __init__(
        self, when: float, number: int, callback: Callable[..., Any], args: tuple[Any, ...], context: Context
    ) -> None:
        super().__init__(callback, args, context)
        self.due = when
        self.number = number

    def when(self) -> float:
        return self.due

    def __lt__(self, other: _Timer) -> bool:
        return (self.due, self.number) < (other.due, other.number)


class RunFuture(asyncio.Future[Any]):
    """A future that hashes by its number in the run, not by its address."""

    __slots__ = ("number",)

    number: int  # set by whoever makes it: a constructor in Python would be felt in every step

    def __hash__(self) -> int:
        return self.number


class RunTask(asyncio.Task[Any]):
    """A task that hashes by its number in the run, and knows its context."""

    __slots__ = ("context", "number")

    def __init__(self, coro: Coroutine[Any, Any, Any], loop: RunLoop, name: str | None, context: Context) -> None:
        self.number = loop.take_number()
        self.context = context
        super().__init__(coro, loop=loop, name=name or f"task-{self.number - loop.first_number}", context=context)

    def __hash__(self) -> int:
        return self.number


class RunLoop(asyncio.AbstractEventLoop):
    """See the module's docstring. `owner` is the activation whose agent runs here."""

    def __init__(self, owner: Any) -> None:
        self.owner: Any = owner
        self._made_on = get_running_loop()  # and pumped on: to ask at each pump would be felt in every step
        if sys.get_asyncgen_hooks().firstiter is not first_iteration:
            watch_generators()
        self.now = 0.0
        self.dead = False
        self.timers_made = 0
        # asyncio keeps the tasks of all loops in one set: starting from 1 in every run, they would all collide there.
        self.first_number = self.numbers = crc32(owner.run_id.encode())
        self._ready: deque[_Handle] = deque()
        self._timers: list[_Timer] = []
        self._tasks: list[RunTask] = []
        self._tasks_before_sweep = 64
        self._suspended = 0
        self._generators: list[Any] = []

    # What the worker's side calls

    def pump(self) -> None:
        """Run until quiet. The one place where agent code executes."""
        set_running_loop(self)
        mark(me := get_ident())
        try:
            self._run_ready()
        finally:
            unmark(me)
            set_running_loop(self._made_on)
        if len(self._tasks) > self._tasks_before_sweep:
            self._sweep_tasks()

    def _run_ready(self) -> None:
        ready = self._ready
        budget = limits.pump_callbacks_max
        while ready:
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt, Suspend):
                pass  # The task it came from holds it; the run ends with it.
            except BaseException as exc:  # noqa: BLE001  # a callback may let a CancelledError out, as on any loop
                self.call_exception_handler({"message": "callback failed", "exception": exc})
            budget -= 1
            if not budget:
                raise _endless(handle)

    @property
    def has_timers(self) -> bool:
        return bool(self._timers)

    def next_timer(self) -> _Timer | None:
        timers = self._timers
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)
        return timers[0] if timers else None

    def fire(self, number: int, at: float) -> bool:
        """A timer fell due at that time. False if there is no such live timer, or if it is due later."""
        first = self.next_timer()
        if first is not None and first.number == number:
            if first.due > at:
                return False
            self._ready.append(heapq.heappop(self._timers))
            return True
        timer = self.live_timer(number)
        if timer is None or timer.due > at:
            return False
        self._timers.remove(timer)
        heapq.heapify(self._timers)
        self._ready.append(timer)
        return True

    def live_timer(self, number: int) -> _Timer | None:
        return next((timer for timer in self._timers if timer.number == number and not timer._cancelled), None)

    def adopt(self, task: RunTask) -> None:
        self._tasks.append(task)

    def live_tasks(self) -> list[RunTask]:
        self._sweep_tasks()
        return list(self._tasks)

    def take_generators(self) -> list[Any]:
        taken, self._generators = self._generators, []
        return taken

    def take_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _sweep_tasks(self) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks_before_sweep = max(64, 2 * len(self._tasks))
        if len(self._tasks) > limits.tasks_live_max:
            raise PerdureError(f"more than {limits.tasks_live_max} tasks at once in one run")

    def keep_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        # Held, so that the garbage collector never runs agent code at a time of its own (design 1.6.7).
        if len(self._generators) >= 256:
            self._generators = [g for g in self._generators if g.ag_frame is not None]
        self._generators.append(generator)

    # What asyncio and agent code call

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> _Handle:  # type: ignore[override]  # a leaner handle
        if self.dead:
            self.suspend()
        handle = _Handle(callback, args, context if context is not None else copy_context())
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> _Handle:  # type: ignore[override]  # a leaner handle
        if self.dead:
            self.suspend()
        context = context if context is not None else copy_context()
        if when <= self.now:
            handle = _Timer(when, 0, callback, args, context)
            self._ready.append(handle)
            return handle
        if not when <= limits.moment_max_s:
            if math.isnan(when):
                raise ValueError("Invalid delay: NaN (not a number)")
            when = limits.moment_max_s
        self.timers_made += 1
        timer = _Timer(when, self.timers_made, callback, args, context)
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(  # type: ignore[override]  # a leaner handle
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def create_future(self) -> RunFuture:
        if self.dead:
            self.suspend()
        future = RunFuture(loop=self)
        future.number = self.take_number()
        return future

    def create_task(  # type: ignore[override]  # always our own task
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> RunTask:
        if self.dead:
            coro.close()
            self.suspend()
            coro = self._never()
        task = RunTask(coro, self, name, context if context is not None else copy_context())
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead or self.owner.replaying:
            return
        exc = context.get("exception")
        log.error(
            "run %s: %s",
            self.owner.run_id,
            context.get("message"),
            exc_info=exc if isinstance(exc, BaseException) else None,
        )

    def is_running(self) -> bool:
        return get_running_loop() is self

    def is_closed(self) -> bool:
        return self.dead

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001  # asyncio's own signature
        del enabled

    def get_task_factory(self) -> None:
        return None

    async def shutdown_asyncgens(self) -> None: ...

    # Leaving memory

    def suspend(self) -> None:
        """Nothing happens on a dead loop. Code that catches everything and tries again gets something to wait on instead, and is left there."""
        self._suspended += 1
        if self._suspended < limits.suspensions_max:
            raise Suspend.make()

    async def _never(self) -> None:
        await self.create_future()

    def drop(self) -> None:
        """Close every coroutine, in creation order, each in its own context; nothing they do has an effect (design 1.6.7)."""
        if self.dead:
            return
        self.dead = True
        previous = get_running_loop()
        set_running_loop(self)
        mark(me := get_ident())
        try:
            close_all(self._tasks, self._generators)
        finally:
            unmark(me)
            set_running_loop(previous)
        self._ready.clear()
        self._timers.clear()
        self._tasks.clear()
        self._generators.clear()
        self.owner = None  # nothing runs here any more: no cycle is left for the collector


def _endless(handle: _Handle) -> PerdureError:
    task = getattr(handle.callback, "__self__", None)
    file, line = waiting_line(task.get_coro()) if isinstance(task, RunTask) else ("?", 0)
    return PerdureError(
        f"{file}:{line}: agent code went on for too long without waiting for anything: is there a loop around asyncio.sleep(0)? "
        "Wait for what is to happen: for a task, an asyncio.Event or a queue. Until it waits, nothing else can happen."
    )


def _refuse(name: str) -> Callable[..., Any]:
    def refused(self: RunLoop, *args: object, **kwargs: object) -> Any:
        if self.dead:
            raise Suspend.make()
        file, line = agent_line()
        raise HiddenState(
            f"{file}:{line}: agent code called loop.{name}(), which reaches outside the run and would not be replayed. "
            "Move it into a @step: steps run on an ordinary event loop.",
            file=file,
            line=line,
        )

    refused.__name__ = name
    return refused


_REACHES_OUTSIDE = """
    run_in_executor set_default_executor getaddrinfo getnameinfo create_connection create_server create_unix_connection
    create_unix_server create_datagram_endpoint connect_accepted_socket connect_read_pipe connect_write_pipe subprocess_exec
    subprocess_shell start_tls sendfile add_reader remove_reader add_writer remove_writer sock_recv sock_recv_into
    sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept sock_sendfile add_signal_handler
    remove_signal_handler call_soon_threadsafe run_forever run_until_complete stop close set_task_factory
    set_exception_handler
"""
for _name in _REACHES_OUTSIDE.split():
    setattr(RunLoop, _name, _refuse(_name))
RunLoop.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # AbstractEventLoop names none, subclasses of it may
