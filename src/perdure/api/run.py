"""`run`: what code may ask about the run it belongs to. In an agent the answers are recorded ones; in a step they are about that step."""

from __future__ import annotations

import random
from asyncio import _get_running_loop as get_running_loop
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure.base import limits
from perdure.base.world import RealWorld
from perdure.errors import UsageError
from perdure.kernel.loop import RunLoop
from perdure.worker.step_context import StepContext, current

if TYPE_CHECKING:
    from perdure.kernel.activation import Activation

_NOT_YET = frozenset(
    ("receive", "ask", "approve", "map", "start", "call", "publish", "compensate", "llm", "transaction"),
)
_world = RealWorld()


class Run:
    """See the module's docstring. There is one, `perdure.run`; it finds the run of the code that asks."""

    __slots__ = ()

    @property
    def id(self) -> str:
        activation = _activation()
        if activation is not None:
            return activation.run_id
        context = current.get()
        if context is None:
            raise UsageError("run.id: this code runs outside any run. Start an agent, or look at a Handle's id")
        return context.run_id

    # In an agent

    def now(self) -> datetime:
        """The time at which the run last got on, in UTC; the same on replay."""
        activation = _activation()
        if activation is None:
            return datetime.fromtimestamp(_world.now(), UTC)
        activation.alive()
        return datetime.fromtimestamp(activation.loop.now, UTC)

    @property
    def random(self) -> random.Random:
        """The run's own generator: seeded once, the same on replay."""
        activation = _activation()
        return activation.random if activation is not None else random.Random(_world.seed())

    def uuid(self) -> UUID:
        """A new UUID; the same on replay."""
        activation = _activation()
        bits = (
            activation.uuids.getrandbits(128)
            if activation is not None
            else random.Random(_world.seed()).getrandbits(128)
        )
        return UUID(int=bits, version=4)

    def patched(self, name: str) -> bool:
        """True where the new code may act, False in runs that have gone the old way here."""
        activation = _agent_only("patched")
        if not name or len(name) > limits.name_chars_max:
            raise UsageError(f"run.patched() needs a name of at most {limits.name_chars_max} characters")
        return activation.patched(name)

    def progress(self, done: float, total: float | None = None, current: str | None = None) -> None:
        """Say how far the run is."""
        activation = _agent_only("progress")
        activation.alive()
        activation.progress = (float(done), float(total) if total is not None else None, current)

    @property
    def note(self) -> str | None:
        """The note of the last `resume(note=…)`."""
        activation = _agent_only("note")
        activation.alive()
        return activation.notes[-1].text if activation.notes else None

    # In a step

    @property
    def key(self) -> str:
        """The step's key: the same however often it is repeated, in every process. Hand it to the target."""
        context = current.get()
        if context is None:
            _step_only("key")
            return f"local:{_world.name()}"
        return context.key

    @property
    def attempt(self) -> int:
        """1, 2, … for the step that asks."""
        context = current.get()
        if context is None:
            _step_only("attempt")
            return 1
        return context.attempt

    def heartbeat(self, details: Any = None) -> None:
        """The step is alive, and this far; the next attempt finds the details in `run.details`."""
        context = current.get()
        if context is None:
            _step_only("heartbeat")
            return
        context.heartbeat(details)

    @property
    def details(self) -> Any:
        """What this step's last heartbeat said, also if that was in an earlier attempt or process."""
        context = current.get()
        if context is None:
            _step_only("details")
            return None
        return context.details()

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_YET:
            raise UsageError(f"run.{name} is not there yet in this version of perdure")
        raise AttributeError(f"run has no {name!r}")

    def __repr__(self) -> str:
        activation = _activation()
        context: StepContext | None = current.get()
        where = activation.run_id if activation else context.run_id if context else "outside any run"
        return f"<run {where}>"


def _activation() -> Activation | None:
    loop = get_running_loop()
    return loop.owner if type(loop) is RunLoop else None


def _agent_only(name: str) -> Activation:
    activation = _activation()
    if activation is None:
        raise UsageError(f"run.{name} is for agent code; this is a step, or code outside any run")
    return activation


def _step_only(name: str) -> None:
    if _activation() is not None:
        raise UsageError(f"run.{name} belongs to a step; agent code has none. Use it inside a @step")


run = Run()
