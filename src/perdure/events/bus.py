"""Typed events, emitted only for what is committed (design 1.6.12). A broken subscriber never breaks a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

log = logging.getLogger("perdure.events")


class Event(msgspec.Struct, frozen=True):
    pass


class RunClaimed(Event, frozen=True):
    id: str
    epoch: int


class RunReleased(Event, frozen=True):
    """The run left this worker: it waits, is paused or parked, or was handed back."""

    id: str
    status: str
    reason: str | None


class RunEnded(Event, frozen=True):
    id: str
    status: str


class RunLost(Event, frozen=True):
    """Another worker holds the run now; what happened here after that was not written."""

    id: str


class LeaseLost(Event, frozen=True):
    worker: int


class WorkerBuried(Event, frozen=True):
    """A dead or expired neighbour; its runs are free."""

    worker: int
    runs: list[str]


class WorkerFailed(Event, frozen=True):
    """A fault of the runtime has stopped this worker; its runs are free for others."""

    message: str


class StoreChanged(Event, frozen=True):
    """Another process wrote to the store."""


class StoreTroubled(Event, frozen=True):
    message: str


_E = TypeVar("_E", bound=Event)


class Events:
    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber) if subscriber in self._subscribers else None

    def emit(self, event: Event) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                log.exception("a subscriber failed on %s", type(event).__name__)

    @property
    def heard(self) -> bool:
        """Is anybody listening? Hot paths skip making events for nobody."""
        return bool(self._subscribers)

    async def wait_for(self, kind: type[_E], **fields: Any) -> _E:
        """The next event of that kind with these field values."""
        found: asyncio.Future[_E] = asyncio.get_running_loop().create_future()

        def look(event: Event) -> None:
            if (
                isinstance(event, kind)
                and not found.done()
                and all(getattr(event, name) == value for name, value in fields.items())
            ):
                found.set_result(event)

        stop = self.subscribe(look)
        try:
            return await found
        finally:
            stop()
