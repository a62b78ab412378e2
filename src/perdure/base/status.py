"""What a run can be, and why it stands still. These words are part of the face."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    PARKED = "parked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why a parked run needs a person."""

    IN_DOUBT = "in_doubt"
    DIVERGED = "diverged"
    CRASH_LOOP = "crash_loop"
    BUDGET = "budget"
    NO_CODE = "no_code"
    STORE = "store"


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class ControlKind(StrEnum):
    """What a person may ask of a run. Each is a row in the store before it is acknowledged (C1)."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    TERMINATE = "terminate"
    RETRY = "retry"
    RESOLVE = "resolve"
    INTERRUPT = "interrupt"
