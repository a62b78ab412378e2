"""One try of one step: on the loop, in a thread or in a process, with a timeout and heartbeats.

An attempt settles once: with a value, an exception, or because time ran out. What it does after that concerns nobody.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Protocol

from perdure.base import codec
from perdure.kernel.ask import Ask
from perdure.kernel.spec import StepSpec
from perdure.worker import step_context
from perdure.worker.services import Services
from perdure.worker.step_context import StepContext
from perdure.worker.threads import StepFuture

_NEVER = float("inf")


class StepTimeout(TimeoutError):
    """The step's time ran out. Whether its effect happened is unknown."""


class StepStalled(StepTimeout):
    """The step's heartbeat stopped. Whether its effect happened is unknown."""


class AttemptHost(Protocol):
    """Who starts attempts and hears of their end."""

    run_id: str
    services: Services

    def settle(self, attempt: Attempt, value: Any, error: BaseException | None) -> None: ...
    def heard(self, attempt: Attempt, details: bytes | None) -> None: ...


class Attempt(StepContext):
    """It is also what the step sees of itself."""

    __slots__ = (
        "_beat_limit_s",
        "_begun",
        "_begun_at",
        "_host",
        "_job",
        "_services",
        "ask",
        "deadline",
        "hard_deadline",
        "over",
        "probing",
        "spec",
        "stopping",
        "task",
    )

    def __init__(
        self,
        ask: Ask,
        spec: StepSpec,
        key: str,
        host: AttemptHost,
        *,
        number: int,
        last_details: bytes | None,
        probing: bool,
    ) -> None:
        self.run_id = host.run_id
        self.step = ask.name
        self.key = key
        self.attempt = number
        self.last_details = last_details
        self.beat = self._heard
        self.ask = ask
        self.spec = spec
        self.over = False
        self.probing = probing
        self.stopping = False
        self.task: asyncio.Task[None] | None = None
        self._host = host
        self._services = host.services
        self._begun = spec.where == "loop" and not probing
        self._job: StepFuture[Any] | None = None
        self._beat_limit_s = spec.rule.heartbeat_timeout_s

    def _set_deadlines(self, now: float) -> None:
        timeout_s = self.spec.rule.timeout_s
        self.hard_deadline = self.deadline = now + (_NEVER if timeout_s is None else timeout_s)
        if self._beat_limit_s is not None:
            self.deadline = min(self.hard_deadline, now + self._beat_limit_s)

    def start(self) -> None:
        services = self._services
        self._set_deadlines(now := services.world.monotonic())
        if self.deadline != _NEVER:
            services.deadlines.watch(self, now)
        services.writer.under_way += 1
        self.task = services.world.spawn(self._run(), services.context.copy())

    def _heard(self, details: bytes | None) -> None:
        """A heartbeat, from whatever thread the step runs in."""
        task = self.task
        if task is not None:
            with suppress(RuntimeError):  # the worker's loop has closed
                task.get_loop().call_soon_threadsafe(self._host.heard, self, details)

    def is_alive(self) -> None:
        """A heartbeat came: the stall limit starts anew, the timeout does not."""
        if self._beat_limit_s is not None:
            self._look_at_thread()
            self.deadline = min(self.hard_deadline, self._services.world.monotonic() + self._beat_limit_s)

    def expire(self, now: float) -> None:
        self._look_at_thread()
        if not self._begun:
            # It still queues for a thread or a process: nothing has happened, its time has not begun.
            self._set_deadlines(now)
        if self.deadline > now:
            self._services.deadlines.watch(self, now)
            return
        name, rule = self.ask.name, self.spec.rule
        late = (
            StepTimeout(f"step {name} took longer than {rule.timeout_s:g} s")
            if now >= self.hard_deadline
            else StepStalled(f"step {name} sent no heartbeat for {self._beat_limit_s:g} s")
        )
        self._end(None, late)
        self.kill()

    @property
    def has_begun(self) -> bool:
        """Else it queues for a thread or a process, and nothing can have happened."""
        return self._begun or (self._job is not None and self._job.started)

    def stop(self) -> None:
        """Nobody waits any more. Code on the loop is cancelled, a process is killed; a thread runs to its end."""
        self.stopping = True
        if self.task is not None and (self.spec.where != "thread" or (self._job is not None and not self._job.started)):
            self.task.cancel()
            # A task that is cancelled before its first line runs no line at all.
            self.task.add_done_callback(lambda _: self._end(None, asyncio.CancelledError()))

    def kill(self) -> None:
        """Settle nothing and stop whatever can be stopped."""
        self._close()
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        step_context.current.set(self)
        value = error = None
        try:
            if self._begun:
                args, kwargs = codec.decode(self.ask.args)
                value = await self.spec.fn(*args, **kwargs)
            else:
                value = await self._elsewhere()
        except BaseException as exc:  # noqa: BLE001  # the step's outcome, whatever it is
            error = exc
        self.task = None  # Its context holds this attempt: a cycle, for the collector to find, of every step.
        # Outside the handler: what the agent raises next has nothing to do with this exception.
        self._end(value, error)
        # The task's context and the exception's frames lead back here: no cycle is left for the collector.
        self.task = self._job = error = None

    async def _elsewhere(self) -> Any:
        spec = self.spec
        if spec.where == "process" and not self.probing:
            data = await self._services.processes.run(
                spec.module, spec.qualname, self.ask.args, self.info(), on_start=self._note_begun
            )
            return codec.decode(data)
        fn = spec.probe if self.probing else spec.fn
        assert fn is not None
        args, kwargs = codec.decode(self.ask.args)
        if inspect.iscoroutinefunction(fn):
            self._begun = True
            return await fn(*args, **kwargs)
        self._begun_at: float | None = None
        self._job = self._services.threads.run(functools.partial(self._in_thread, fn, args, kwargs), copy_context())
        return await self._job

    def _in_thread(self, fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        self._begun_at = self._services.world.monotonic()
        return fn(*args, **kwargs)

    def _look_at_thread(self) -> None:
        """Its time counts from when a thread took it, not from when it began to queue for one."""
        if not self._begun and self._job is not None and self._begun_at is not None:
            self._begun = True
            self._set_deadlines(self._begun_at)

    def _note_begun(self) -> None:
        self._begun = True
        self._set_deadlines(self._services.world.monotonic())

    def _end(self, value: Any, error: BaseException | None) -> None:
        if not self.over:
            self._close()
            self._host.settle(self, value, error)

    def _close(self) -> None:
        if self.over:
            return
        self.over = True
        self.beat = None  # A late heartbeat is dropped; and no cycle is left for the collector.
        self._services.deadlines.forget(self)
        self._services.writer.under_way -= 1
