"""Every exception of perdure, sorted by what the runtime does next.

PerdureError
├── UsageError              the caller is wrong: raised at the call, names the fix
│   ├── NotFound            no such run, step, agent or module
│   ├── Conflict            the store holds something else under that name
│   ├── NotStorable         a value that cannot be written, with the path inside it
│   ├── StoreUnusable       what stands at the store's path cannot be one
│   ├── HiddenState         agent code read the clock, randomness, the environment or did I/O outside a step
│   └── RunGone             a call on a run that no longer executes here
├── RunError                what a run ends or stops with
│   ├── RunFailed           raised by `Handle.result()` for a failed run
│   ├── RunCancelled        raised by `Handle.result()` for a cancelled run
│   ├── RunParked           raised by `Handle.result()` for a run that needs a person
│   ├── Diverged            code no longer matches the journal: the run parks
│   ├── StepError           a step failed for good; raised in agent code, live and on replay
│   └── PayloadTooLarge     a value over its limit
├── RetryLater              the worker parks the work and tries again
│   └── StoreUnavailable    the store cannot be reached or written now
├── InDoubt                 the effect may or may not have happened
├── Permanent               raised by a step: do not retry me
├── Outcome                 raised by a step: an answer, not a failure; never retried
├── StoreDamaged            what the store holds fails its own checks
└── WorkerMustStop          this process may no longer act
    ├── LeaseLost           another worker has taken over
    └── StoreTooNew         the store was written by a newer perdure
BaseException
└── Suspend                 runtime only: ends a coroutine that is dropped from memory
"""

from __future__ import annotations

from typing import Any


class PerdureError(Exception):
    """Something went wrong in perdure."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else (self.__doc__ or "").strip())


class UsageError(PerdureError):
    """The call is wrong."""


class NotFound(UsageError):
    """There is nothing of that name. `perdure ps` lists the runs."""


class Conflict(UsageError):
    """Something else is stored under that name. Choose another id, or look at it with `perdure show`."""


class NotStorable(UsageError):
    """A value cannot be stored. Pass plain data: numbers, text, lists, dicts, dataclasses, models."""

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class StoreUnusable(UsageError):
    """What stands at that path cannot be a store. Choose another one; nothing was changed."""


class HiddenState(UsageError):
    """Agent code used something that would differ on replay. Move it into a step."""

    def __init__(self, message: str, *, file: str = "?", line: int = 0) -> None:
        super().__init__(message)
        self.file = file
        self.line = line


class RunGone(UsageError):
    """This run no longer executes in this process. Ask through a Handle instead."""


class RunError(PerdureError):
    """A run ended or stopped."""


class RunFailed(RunError):
    """The run failed. `perdure retry ID` goes on from the failed step."""

    def __init__(self, type: str, message: str, data: Any = None) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message
        self.data = data


class RunCancelled(RunError):
    """The run was cancelled."""


class RunParked(RunError):
    """The run waits for a person. `perdure show ID` says why and what to do."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Diverged(RunError):
    """The code no longer asks for what the journal records. Put the old code back, or use run.patched()."""

    def __init__(self, message: str, *, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.data = data or {}


class StepError(RunError):
    """A step failed for good."""

    def __init__(self, type: str, message: str, data: Any = None, *, step: str = "", position: int = 0) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message
        self.data = data
        self.step = step
        self.position = position


class PayloadTooLarge(RunError):
    """A value is over its limit. Write it to a file or a table in a step, and return where it is."""


class RetryLater(PerdureError):
    """Not now. It is tried again."""


class StoreUnavailable(RetryLater):
    """The store cannot be used now. Check the disk and the path; the work goes on when it is back."""


class InDoubt(PerdureError):
    """The effect may or may not have happened. `perdure resolve RUN STEP` with --done, --retry or --fail."""


class Permanent(PerdureError):
    """Raise it in a step to fail at once: no retry will help."""


class Outcome(PerdureError):
    """Derive from it for a step's answers that travel as exceptions. They are recorded, never retried."""


class StoreDamaged(PerdureError):
    """The store fails its checks. Nothing was changed. Restore a backup."""


class WorkerMustStop(PerdureError):
    """This worker may no longer act."""


class LeaseLost(WorkerMustStop):
    """Another worker has taken over. Nothing more was written from here."""


class StoreTooNew(WorkerMustStop):
    """The store was written by a newer perdure. Install that version; nothing was changed."""


class Suspend(BaseException):
    """This run is being dropped from memory and can ask for nothing more. Do not catch it; cleanup belongs in a step."""

    def __init__(self, *, _token: object = None) -> None:
        if _token is not _SUSPEND:
            raise TypeError("Suspend belongs to the runtime: raise an exception of your own instead")
        super().__init__(self.__doc__)

    @classmethod
    def make(cls) -> Suspend:
        return cls(_token=_SUSPEND)


_SUSPEND = object()
