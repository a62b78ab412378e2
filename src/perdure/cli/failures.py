"""What went wrong, in one sentence for a person and one number for a script.

F2. A user's mistake never shows a traceback; a bug of perdure always does.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from perdure.errors import (
    Conflict,
    Diverged,
    InDoubt,
    NotFound,
    PayloadTooLarge,
    PerdureError,
    RunCancelled,
    RunFailed,
    RunParked,
    StoreDamaged,
    StoreUnavailable,
    StoreUnusable,
    UsageError,
    WorkerMustStop,
)

OK: Final = 0
RUN_FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
CONFLICT: Final = 4
STORE: Final = 5
HUMAN: Final = 6
CANCELLED: Final = 7
DIVERGED: Final = 8
BUG: Final = 70
UNWRITABLE: Final = 74
TIMEOUT: Final = 124
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143

_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    # Subclasses stand before their bases.
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (StoreUnusable, STORE),
    (UsageError, USAGE),
    (PayloadTooLarge, USAGE),
    (StoreUnavailable, STORE),
    (StoreDamaged, STORE),
    (WorkerMustStop, STORE),
    (RunFailed, RUN_FAILED),
    (RunCancelled, CANCELLED),
    (Diverged, DIVERGED),
    (InDoubt, HUMAN),
    (TimeoutError, TIMEOUT),
)


class Failure(NamedTuple):
    code: int
    message: str


def explain(exc: BaseException) -> Failure | None:
    """None for what is not the user's to mend: a bug."""
    if isinstance(exc, KeyboardInterrupt):
        return Failure(INTERRUPTED, "interrupted")
    if isinstance(exc, RunParked):
        return Failure(DIVERGED if exc.reason == "diverged" else HUMAN, str(exc))
    for kind, code in _CODES:
        if isinstance(exc, kind):
            return Failure(code, str(exc))
    return Failure(RUN_FAILED, str(exc)) if isinstance(exc, PerdureError) else None


def say(message: str) -> None:
    print(f"perdure: {message}", file=sys.stderr, flush=True)
