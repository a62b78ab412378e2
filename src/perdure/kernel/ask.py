"""One thing an agent asked for, from W1 to W2, and the future its coroutine waits on."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from perdure.base.records import Resolved, Tried
from perdure.kernel.loop import RunFuture, RunLoop
from perdure.kernel.spec import StepSpec


class Asker(Protocol):
    """What an ask needs of the activation it belongs to."""

    loop: RunLoop

    def abandon(self, ask: Ask) -> None: ...
    def want_stop(self, ask: Ask) -> None: ...


class AskFuture(RunFuture):
    """Cancelling the wait for an effect does not undo the effect: the awaiter is kept until the outcome is recorded (design 1.6.9)."""

    __slots__ = ("ask", "asker")

    def __init__(self, asker: Asker, ask: Ask) -> None:
        super().__init__(asker.loop)
        self.asker = asker
        self.ask = ask

    def cancel(self, msg: Any = None) -> bool:
        if self.done():
            return False
        if self.ask.is_read or self.asker.loop.dead:
            self.asker.abandon(self.ask)
            return super().cancel(msg)
        self.asker.want_stop(self.ask)
        return True

    def give_up(self) -> None:
        """The outcome is recorded: it was cancelled."""
        super().cancel()


class Ask:
    """Open from the moment the agent asks until its outcome is delivered."""

    __slots__ = (
        "args",
        "attempt",
        "doubted",
        "effect",
        "future",
        "is_read",
        "name",
        "position",
        "probe",
        "resolved",
        "seq",
        "spec",
        "started",
        "stop_level",
        "stop_wanted",
        "task",
        "tried",
        "unknown_count",
        "what",
    )

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
        self.position = position
        self.what = what
        self.name = name
        self.effect = effect
        self.is_read = effect == "read"
        self.args = args
        self.spec = spec
        self.probe = spec is not None and spec.probe is not None
        self.seq = 0  # number of the W1 record
        self.attempt = 0  # attempts that are on record
        self.started = False  # W1' without an outcome
        self.doubted = False
        self.tried: Tried | None = None
        self.unknown_count = 0
        self.resolved: Resolved | None = None
        self.stop_wanted = False
        self.stop_level = 0
        self.task = task  # the one that waits
        self.future = AskFuture(asker, self)

    def recorded_as(self, effect: str, *, probe: bool) -> None:
        """The rule it was decided under holds for its recovery."""
        self.effect = effect
        self.is_read = effect == "read"
        self.probe = probe

    def reopen(self) -> None:
        """Start over with a clean slate: a person asked for a retry."""
        self.started = self.doubted = False
        self.tried = None
        self.attempt = self.unknown_count = 0
