"""Exceptions for endings of a step that are not simply what its code raised.

N1. What reaches the worker's loop is an `Exception` that can be raised into a task: `SystemExit` and its like, raised
    by a step, would end the worker; a `CancelledError` would look like the worker's own cancellation.
N2. An ending that leaves the outcome open keeps that knowledge: `classify` finds it again.
"""

from __future__ import annotations

from perdure.base.records import ErrorData
from perdure.errors import PerdureError


class ChildDied(PerdureError):
    """The process that worked on the step died. Whether its effect happened is unknown."""


class StepEscaped(PerdureError):
    """The step raised something that is not an ordinary exception. Raise an Exception instead."""


class ChildError(PerdureError):
    """A step failed in a child process.

    `error` is the failure as it is stored, made where the exception was; `kind` is what `classify.known_kind` said of
    it there, or nothing; `bases` names its classes as `module:qualname`, most specific first.
    """

    def __init__(
        self, error: ErrorData, *, kind: str = "", retry_after: float | str | None = None, bases: tuple[str, ...] = ()
    ) -> None:
        super().__init__(f"{error.type}: {error.message}")
        self.error = error
        self.kind = kind
        self.retry_after = retry_after
        self.bases = bases

    def is_one_of(self, classes: tuple[type[BaseException], ...]) -> bool:
        """Whether the exception in the child was of one of these classes; compared by name, nothing is imported."""
        return any(self._is_a(cls) for cls in classes)

    def _is_a(self, cls: type[BaseException]) -> bool:
        # A script's own module is `__main__` here and has its file's name in the child.
        if cls.__module__ == "__main__":
            return any(base.partition(":")[2] == cls.__qualname__ for base in self.bases)
        return f"{cls.__module__}:{cls.__qualname__}" in self.bases


def as_failure(raised: BaseException) -> Exception:
    """What the step raised, as an exception that can be raised into a task (N1)."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    name = type(raised).__name__
    escaped = StepEscaped(
        f"The step raised {name}({raised}), which is meant to stop more than the step, so it was turned into this "
        f"ordinary failure. Let the step return, or raise an Exception."
    )
    escaped.__cause__ = raised
    return escaped
