"""Errors as data and back: a failure is raised the same way live and on replay (design 1.6.4)."""

from __future__ import annotations

import contextlib
import traceback
from typing import Any, cast

import msgspec

from perdure.base import codec, limits
from perdure.base.records import ErrorData
from perdure.errors import NotStorable, PayloadTooLarge, StepError, StoreDamaged
from perdure.kernel.source import is_runtime_file
from perdure.rules.step_endings import ChildError


def error_data(exc: BaseException, *, step: str = "", position: int = 0) -> ErrorData:
    if not position:
        step, position = _failed_step(exc) or (step, position)
    if isinstance(exc, ChildError):
        # It was made where the exception was.
        return msgspec.structs.replace(exc.error, step=step, position=position)
    text = _traceback(exc)
    data = getattr(exc, "data", None)
    return ErrorData(
        type=type(exc).__name__,
        message=_text(exc)[: limits.error_message_chars_max],
        traceback=text[-limits.error_traceback_chars_max :].encode("utf-8", "replace").decode(),
        data=_bytes(data) if data is not None else None,
        args=_bytes(list(exc.args)),
        step=step,
        position=position,
    )


def raise_as(error: ErrorData, raises: tuple[type[BaseException], ...]) -> BaseException:
    """The exception agent code gets: a class named in `raises=`, else a `StepError`. Nothing is imported by name (S2)."""
    for cls in raises:
        if cls.__name__ == error.type and (exc := _rebuild(cls, error)) is not None:
            with contextlib.suppress(AttributeError):
                exc.perdure_step = (error.step, error.position)  # type: ignore[attr-defined]  # read by `_failed_step`
            return exc
    return StepError(error.type, error.message, _value(error.data), step=error.step, position=error.position)


def _failed_step(exc: BaseException | None) -> tuple[str, int] | None:
    """The step that made the agent fail: the error's own, its cause's, or that of a group's first (delivered first, too)."""
    for _ in range(limits.payload_depth_max):
        if isinstance(exc, StepError):
            return exc.step, exc.position
        if (marked := getattr(exc, "perdure_step", None)) is not None:
            return marked
        if isinstance(exc, BaseExceptionGroup):
            members = cast("BaseExceptionGroup[BaseException]", exc).exceptions
            return next(filter(None, map(_failed_step, members)), None)
        if exc is None:
            return None
        exc = exc.__cause__
    return None


def _rebuild(cls: type[BaseException], error: ErrorData) -> BaseException | None:
    """None if data alone does not make one: a group has exceptions among its arguments, and no future takes a `StopIteration`."""
    if issubclass(cls, StopIteration):
        return None
    args: Any = _value(error.args)
    with contextlib.suppress(Exception):  # a constructor of the user's, with arguments of its own
        return cls(*(args if args is not None else [error.message]))
    with contextlib.suppress(Exception):
        exc = cls.__new__(cls)
        exc.args = tuple(args or [error.message])
        return exc
    return None


def _traceback(exc: BaseException) -> str:
    """As Python prints it, without the runtime's own frames."""
    report = traceback.TracebackException.from_exception(exc, limit=-24, compact=True)
    shown: traceback.TracebackException | None = report
    while shown is not None:
        mine = [frame for frame in shown.stack if not is_runtime_file(frame.filename)]
        shown.stack = traceback.StackSummary.from_list(mine)
        shown = shown.__cause__ or shown.__context__
    return "".join(report.format())


def _text(exc: BaseException) -> str:
    try:
        return str(exc).encode("utf-8", "replace").decode()
    except Exception as broken:  # noqa: BLE001  # a `__str__` of the user's
        return f"(its message cannot be read: {type(broken).__name__})"


def _bytes(value: Any) -> bytes | None:
    try:
        data = codec.encode(value)
    except (NotStorable, PayloadTooLarge):
        return None
    return data if len(data) <= limits.error_traceback_chars_max else None


def _value(data: bytes | None) -> Any:
    try:
        return codec.decode(data) if data is not None else None
    except StoreDamaged:
        return None
