"""What the steps of a run need of the run they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from perdure.base.records import AnyRecord
from perdure.kernel.activation import Activation
from perdure.kernel.ask import Ask
from perdure.worker.outbox import Outbox
from perdure.worker.services import Services


class Host(Protocol):
    """What the steps need of the run they belong to."""

    id: str
    epoch: int
    services: Services
    activation: Activation
    outbox: Outbox
    dead: bool
    now: Callable[[], float]
    deliver: Callable[[AnyRecord], None]

    @property
    def free(self) -> bool: ...
    @property
    def backlogged(self) -> bool: ...
    def after(self) -> None: ...
    def broken(self, exc: Exception) -> None: ...
    def guard_next_write(self) -> None: ...
    def pulse(self, position: int, details: bytes | None) -> None: ...
    def recover_later(self, ask: Ask) -> None: ...
    def park_in_doubt(self, ask: Ask, why: str) -> None: ...
