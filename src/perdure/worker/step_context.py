"""What code inside a step may know of itself: `run.key`, `run.attempt`, `run.heartbeat(…)`. Bound to the step, also in its thread or process."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

from perdure.base import codec


class StepContext:
    __slots__ = ("attempt", "beat", "key", "last_details", "run_id", "step")

    def __init__(self, run_id: str, step: str, key: str, attempt: int) -> None:
        self.run_id = run_id
        self.step = step
        self.key = key
        self.attempt = attempt
        self.last_details: bytes | None = None
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


def effect_key(run_id: str, position: int) -> str:
    """J4: a function of run and position alone. Safe in an HTTP header."""
    return f"{quote(run_id, safe='')}:{position}"


def read_key(run_id: str, position: int, epoch: int, attempt: int) -> str:
    """A namespace of its own: a lost read may never lend its key to an effect (design 1.6.6)."""
    return f"{quote(run_id, safe='')}:read:{epoch}.{position}.{attempt}"
