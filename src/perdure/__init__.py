"""perdure: write plain asyncio; it survives `kill -9`.

from perdure import Perdure, agent, run, step
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.api.agent import agent
    from perdure.api.app import Perdure
    from perdure.api.done import Done
    from perdure.api.handle import Handle
    from perdure.api.run import run
    from perdure.api.step import step
    from perdure.base.codec import register
    from perdure.errors import (
        Conflict,
        Diverged,
        HiddenState,
        InDoubt,
        NotFound,
        NotStorable,
        Outcome,
        PayloadTooLarge,
        PerdureError,
        Permanent,
        RunCancelled,
        RunFailed,
        RunParked,
        StepError,
        StoreUnavailable,
        UsageError,
    )
    from perdure.rules.backoff import Backoff

__all__ = [
    "Backoff",
    "Conflict",
    "Diverged",
    "Done",
    "Handle",
    "HiddenState",
    "InDoubt",
    "NotFound",
    "NotStorable",
    "Outcome",
    "PayloadTooLarge",
    "Perdure",
    "PerdureError",
    "Permanent",
    "RunCancelled",
    "RunFailed",
    "RunParked",
    "StepError",
    "StoreUnavailable",
    "UsageError",
    "agent",
    "register",
    "run",
    "step",
]
__version__ = "0.1.0"


_HOMES = {
    "Backoff": "perdure.rules.backoff",
    "Done": "perdure.api.done",
    "Handle": "perdure.api.handle",
    "Perdure": "perdure.api.app",
    "agent": "perdure.api.agent",
    "register": "perdure.base.codec",
    "run": "perdure.api.run",
    "step": "perdure.api.step",
}


def __getattr__(name: str) -> Any:
    """The public names are loaded together, on first use, so that `perdure --help` does not pay for the runtime."""
    if name not in __all__:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    for public in __all__:
        globals()[public] = getattr(import_module(_HOMES.get(public, "perdure.errors")), public)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
