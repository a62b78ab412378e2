"""What code inside a step may know of itself: `run.key`, `run.attempt`, `run.heartbeat(…)`. Bound to the step, also in its thread or process."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

from perdure.base import codec


class StepContext:
    __slots__ = ("attempt", "beat", "key", "last_details", "run_id", "step")

    def __init__(self, run_id: str, step: str, key: str, attempt: int, last_details: bytes | None = None) -> None:
        self.run_id = run_id
        self.step = step
        self.key = key
        self.attempt = attempt
        self.last_details = last_details
        self.beat: Callable[[bytes | None], None] | None = None

    def heartbeat(self, details: Any = None) -> None:
        data = codec.encode(details) if details is not None else None
        self.last_details = data
        if self.beat is not None:
            self.beat(data)

    def details(self) -> Any:
        """What the last heartbeat said, also if it came from an earlier attempt."""
        return codec.decode(self.last_details) if self.last_details is not None else None

    def info(self) -> dict[str, Any]:
        return {"run_id": self.run_id, "step": self.step, "key": self.key, "attempt": self.attempt}


current: ContextVar[StepContext | None] = ContextVar("perdure_step", default=None)


def enter(info: dict[str, Any]) -> None:
    """In a child process: take over the context of the step that runs there."""
    current.set(StepContext(info["run_id"], info["step"], info["key"], info["attempt"]))


class Keys:
    """The keys of one run's steps, safe in an HTTP header."""

    __slots__ = ("_prefix",)

    def __init__(self, run_id: str) -> None:
        self._prefix = quote(run_id, safe="")

    def effect(self, position: int) -> str:
        """J4: a function of run and position alone."""
        return f"{self._prefix}:{position}"

    def read(self, position: int, epoch: int, attempt: int) -> str:
        """A namespace of its own: a lost read may never lend its key to an effect (design 1.6.6)."""
        return f"{self._prefix}:read:{epoch}.{position}.{attempt}"
