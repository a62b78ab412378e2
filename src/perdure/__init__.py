"""perdure: write plain asyncio; it survives `kill -9`.

    from perdure import Perdure, agent, run, step
"""

from __future__ import annotations

from perdure.api.agent import agent
from perdure.api.app import Perdure
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
