"""One try of one step: on the loop, in a thread or in a process, with a timeout and heartbeats.

An attempt settles once: with a value, an exception, or because time ran out. What it does after that concerns nobody.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from perdure.base import codec
from perdure.errors import StoreDamaged
from perdure.kernel.ask import Ask
from perdure.worker import step_context
from perdure.worker.step_context import StepContext

if TYPE_CHECKING:
    from perdure.worker.services import Services


class StepTimeout(TimeoutError):
    """The step's time ran out. Whether its effect happened is unknown."""


class StepStalled(StepTimeout):
    """The step's heartbeat stopped. Whether its effect happened is unknown."""


class Attempt:
    __slots__ = ("_beat_limit_s", "_services", "_settle", "ask", "context", "deadline", "hard_deadline", "number", "over", "probing", "stopping", "task")

    def __init__(
        self, ask: Ask, number: int, context: StepContext, services: Services, settle: Callable[[Attempt, Any, BaseException | None], None], *, probing: bool
    ) -> None:
        self.ask = ask
        self.number = number
        self.context = context
        self.over = False
        self.probing = probing
        self.stopping = False
        self._services = services
        self._settle = settle
        self.task: asyncio.Task[None] | None = None
        assert ask.spec is not None
        rule = ask.spec.rule
        self._beat_limit_s = rule.heartbeat_timeout_s
        now = services.world.monotonic()
        self.hard_deadline = now + rule.timeout_s if rule.timeout_s is not None else float("inf")
        self.deadline = min(self.hard_deadline, now + self._beat_limit_s if self._beat_limit_s else float("inf"))

    def start(self) -> None:
        if self.deadline != float("inf"):
            self._services.deadlines.watch(self)
        self.task = self._services.world.spawn(self._run())

    def beat(self) -> None:
        """A heartbeat came: the stall limit starts anew, the timeout does not."""
        if self._beat_limit_s:
            self.deadline = min(self.hard_deadline, self._services.world.monotonic() + self._beat_limit_s)

    def expire(self, now: float) -> None:
        if now >= self.hard_deadline:
            rule_s = self.ask.spec.rule.timeout_s if self.ask.spec else None
            self._end(None, StepTimeout(f"step {self.ask.name} took longer than {rule_s:g} s"))
        else:
            self._end(None, StepStalled(f"step {self.ask.name} sent no heartbeat for {self._beat_limit_s:g} s"))
        self.kill()

    def stop(self) -> None:
        """Nobody waits any more. Code on the loop is cancelled; a thread runs to its end, a process is killed."""
        self.stopping = True
        spec = self.ask.spec
        if self.task is not None and spec is not None and spec.where != "thread":
            self.task.cancel()

    def kill(self) -> None:
        """Settle nothing and stop whatever can be stopped."""
        self.over = True
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        value, error = None, None
        step_context.current.set(self.context)
        try:
            value = await self._call()
        except BaseException as exc:  # noqa: BLE001  # the step's outcome, whatever it is
            error = exc
        self._end(value, error)

    async def _call(self) -> Any:
        spec = self.ask.spec
        assert spec is not None
        if spec.where == "loop" and not self.probing:
            args, kwargs = self._arguments()
            return await spec.fn(*args, **kwargs)
        if spec.where == "process" and not self.probing:
            data = await self._services.processes.run(spec.module, spec.qualname, self.ask.args, self.context.info())
            return codec.decode(data)
        args, kwargs = self._arguments()
        fn = spec.probe if self.probing else spec.fn
        assert fn is not None
        if asyncio.iscoroutinefunction(fn):
            return await fn(*args, **kwargs)
        return await self._services.threads.run(functools.partial(fn, *args, **kwargs), copy_context())

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        decoded: Any = codec.decode(self.ask.args)
        if not isinstance(decoded, list):
            raise StoreDamaged(f"the arguments of step {self.ask.position} cannot be read")
        args, kwargs = decoded
        return args, kwargs

    def _end(self, value: Any, error: BaseException | None) -> None:
        if not self.over:
            self.over = True
            self._settle(self, value, error)
