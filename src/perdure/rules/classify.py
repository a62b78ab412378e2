"""Sorting what a step raised by what is known about the outside world afterwards.

Y1. A timeout, a lost connection, a dead child process and a cancellation leave the outcome open: `Unknown`, whatever
    the step declares about its exceptions.
Y2. What the step declares (`errors.Outcome`, `errors.Permanent`, `raises=`) comes before what we guess.
Y3. What nobody knows is `Refused` and may be retried: a step that hides a lost connection in an exception of its own
    should raise `errors.InDoubt` instead.
"""

from __future__ import annotations

import asyncio
from typing import cast

from perdure import errors
from perdure.rules.step_endings import ChildDied, ChildError, StepEscaped
from perdure.rules.transports import Kind, status_kind, transport_kind

__all__ = ["Kind", "classify", "known_kind"]

_UNKNOWN = (asyncio.CancelledError, ChildDied, errors.InDoubt, errors.WorkerMustStop)
_PERMANENT = (
    errors.Permanent,
    errors.UsageError,
    errors.RunError,
    errors.StoreDamaged,
    # Mistakes in the program: the same code will make them again.
    TypeError,
    NameError,
    AttributeError,
    ImportError,
    SyntaxError,
    NotImplementedError,
    AssertionError,
)
# The worst of a group decides for the whole.
_WORST_FIRST = (Kind.UNKNOWN, Kind.PERMANENT, Kind.REFUSED, Kind.ANSWER)


def classify(exc: BaseException, raises: tuple[type[BaseException], ...] = ()) -> Kind:
    """The kind of outcome that `exc` stands for; `raises` are the exceptions the step declares as its answers."""
    if isinstance(exc, BaseExceptionGroup):
        return _worst(cast("BaseExceptionGroup[BaseException]", exc), raises)
    kind = known_kind(exc)
    if kind is Kind.UNKNOWN or kind is Kind.REFUSED:
        return kind  # Y1; what is known to be worth another attempt gets it before it is an answer
    if _is_declared(exc, raises):
        return Kind.ANSWER  # Y2
    return kind if kind is not None else Kind.REFUSED  # Y3


def known_kind(exc: BaseException) -> Kind | None:
    """The kind of an exception as such, whatever the step declares; None for one that says nothing."""
    if isinstance(exc, ChildError):
        return Kind(exc.kind) if exc.kind else None  # classified in the child, where the exception was
    if isinstance(exc, StepEscaped) and exc.__cause__ is not None:
        return known_kind(exc.__cause__)
    if isinstance(exc, BaseExceptionGroup):
        return _worst(cast("BaseExceptionGroup[BaseException]", exc), ())
    if isinstance(exc, errors.Outcome):
        return Kind.ANSWER
    if isinstance(exc, _UNKNOWN):
        return Kind.UNKNOWN
    if isinstance(exc, errors.Permanent):
        return Kind.PERMANENT  # before its status: the step has looked at it and decided
    if (known := status_kind(exc) or transport_kind(exc)) is not None:
        return known
    return Kind.PERMANENT if isinstance(exc, _PERMANENT) else None


def _worst(group: BaseExceptionGroup[BaseException], raises: tuple[type[BaseException], ...]) -> Kind:
    kinds = {classify(member, raises) for member in group.exceptions}
    return next(kind for kind in _WORST_FIRST if kind in kinds)


def _is_declared(exc: BaseException, raises: tuple[type[BaseException], ...]) -> bool:
    if isinstance(exc, ChildError):
        return exc.is_one_of(raises)
    return isinstance(exc, raises)
