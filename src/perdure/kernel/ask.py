"""One thing an agent asked for, from W1 to W2, and the future its coroutine waits on."""

from __future__ import annotations

import asyncio
import asyncio.tasks
import asyncio.timeouts
import sys
from types import FrameType
from typing import Any, Protocol

import msgspec

from perdure.base.records import Resolved, Started, Tried
from perdure.kernel.loop import RunFuture, RunLoop
from perdure.kernel.spec import StepSpec
from perdure.rules.effect import Effect, StepRule


class Asker(Protocol):
    """What an ask needs of the activation it belongs to."""

    loop: RunLoop

    def abandon(self, ask: Ask) -> None: ...
    def want_stop(self, ask: Ask, *, by_timeout: bool) -> None: ...


class AskFuture(RunFuture):
    """Cancelling the wait for an effect does not undo the effect: the awaiter is kept until the outcome is recorded (design 1.6.9)."""

    __slots__ = ("ask",)

    number: int
    ask: Ask

    def cancel(self, msg: Any = None) -> bool:
        if self.done():
            return False
        ask = self.ask
        if ask.is_read or ask.asker.loop.dead:
            ask.asker.abandon(ask)
            return super().cancel(msg)
        ask.asker.want_stop(ask, by_timeout=_by_timeout(sys._getframe(1)))
        ask.cancel_msg = msg
        return True

    def give_up(self, msg: Any) -> None:
        """The outcome is recorded, and the awaiter gets its cancellation."""
        super().cancel(msg)


_timeouts: Any = asyncio.timeouts
_tasks: Any = asyncio.tasks
_ON_TIMEOUT = _timeouts.Timeout._on_timeout.__code__
_IN_WAIT_FOR = getattr(getattr(_tasks, "_cancel_and_wait", None), "__code__", None)


def _by_timeout(canceller: FrameType) -> bool:
    """Did `timeout` or `wait_for` cancel it because time ran out? `wait_for` also passes on a cancellation of its own task."""
    if canceller.f_code is _IN_WAIT_FOR:
        outer = asyncio.current_task()
        return outer is None or not outer.cancelling()
    return canceller.f_code is _ON_TIMEOUT


class Ask:
    """Open from the moment the agent asks until its outcome is delivered."""

    # What most asks never change stands here once: one ask is made for every step.
    seq = 0  # number of the W1 record
    attempt = 0  # attempts that are on record
    started = False  # W1' without an outcome
    doubted = ""  # why nobody knows its outcome
    tried: Tried | None = None
    unknown_count = 0
    resolved: Resolved | None = None
    stop_wanted = False
    stop_by_timeout = True
    stop_level = 0
    cancel_msg: Any = None

    def __init__(
        self,
        asker: Asker,
        position: int,
        what: str,
        name: str,
        effect: str,
        args: bytes,
        spec: StepSpec | None,
        task: asyncio.Task[Any] | None,
    ) -> None:
        self.asker = asker
        self.position = position
        self.what = what
        self.name = name
        self.effect = effect
        self.is_read = effect == "read"
        self.args = args
        self.spec = spec
        self.probe = spec is not None and spec.probe is not None
        self.marks_start = self.probe or effect == "once"
        self.task = task  # the one that waits
        loop = asker.loop
        loop.numbers += 1
        future = self.future = AskFuture(loop=loop)
        future.number = loop.numbers
        future.ask = self

    @property
    def rule(self) -> StepRule:
        """The rule it was decided under, with the code's other settings."""
        assert self.spec is not None
        rule = self.spec.rule
        if rule.effect == self.effect and rule.probe == self.probe:
            return rule
        if self.probe and self.spec.probe is None:
            return msgspec.structs.replace(rule, effect=Effect.ONCE, probe=False)
        return msgspec.structs.replace(rule, effect=Effect(self.effect), probe=self.probe)

    def recorded_as(self, effect: str, *, probe: bool) -> None:
        """The rule it was decided under holds for its recovery."""
        self.effect = effect
        self.is_read = effect == "read"
        self.probe = probe
        self.marks_start = probe or effect == "once"

    def starts(self, record: Started) -> None:
        self._heard_of(record.attempt)
        self.started = True

    def failed(self, record: Tried) -> None:
        self._heard_of(record.attempt)
        self.started = False
        self.tried = record
        self.attempt = record.attempt  # or one less: a start that was held back
        self.unknown_count += record.unknown

    def _heard_of(self, attempt: int) -> None:
        """Attempts before this one of which nothing more is on record died with their process: nobody knows their outcome."""
        if attempt > self.attempt:
            self.unknown_count += attempt - 1 - self.attempt + self.started
            self.attempt = attempt

    def close(self) -> AskFuture:
        """It is open no longer. Its future lets go of it, so that no cycle is left for the collector."""
        future = self.future
        del future.ask
        return future

    def reopen(self) -> None:
        """Start over with a clean slate: a person asked for a retry."""
        self.started = False
        self.doubted = ""
        self.tried = None
        self.attempt = self.unknown_count = 0
