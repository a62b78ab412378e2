"""JSON from the command line into the types an agent or step asks for.

For people's input: lenient about form, exact about where it is wrong.
"""

from __future__ import annotations

import fractions
import inspect
import ipaddress
import pathlib
import sys
from typing import Any, Final

import msgspec

from perdure.base.codec.models import model_base
from perdure.errors import UsageError

_FROM_TEXT: Final[tuple[type, ...]] = (
    pathlib.PurePath,
    fractions.Fraction,
    complex,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
)


def convert(value: object, annotation: Any) -> Any:
    """The value as the annotated type. Raises UsageError that says where in the value and why."""
    if annotation is inspect.Parameter.empty or annotation is Any or annotation is object:
        return value
    if isinstance(annotation, str):
        raise UsageError(f"the annotation {annotation!r} is text. Resolve it with typing.get_type_hints first")
    try:
        return msgspec.convert(value, annotation, dec_hook=_hook)
    except msgspec.ValidationError as error:
        raise UsageError(_message(error)) from error
    except TypeError as error:
        return _by_pydantic(value, annotation, error)


def _message(error: Exception) -> str:
    text, _, path = str(error).rpartition(" - at ")
    inner: str = getattr(error.__cause__, "path", "")
    where = path.strip("`") if text else "$"
    return f"{text or path} (at {where}{inner})"


class _Mismatch(ValueError):
    """Carries the path inside a model to the outside; never leaves this module."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def _hook(kind: Any, value: Any) -> Any:
    """What msgspec does not know: models, and a few types of the standard library that are written as text."""
    if _is_class_of(kind, model_base() or ()):
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise _mismatch(error) from error
    if _is_class_of(kind, object) and isinstance(value, kind):
        return value
    if _is_class_of(kind, _FROM_TEXT) and isinstance(value, str | int | float):
        return _from_text(kind, value)
    raise ValueError(f"values of type {kind!r} cannot be given as JSON")


def _is_class_of(kind: Any, base: type | tuple[type, ...]) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)


def _from_text(kind: Any, value: Any) -> Any:
    try:
        return kind(value)
    except (ValueError, TypeError, ArithmeticError, NotImplementedError) as error:
        raise ValueError(f"{value!r:.80} is no {kind.__qualname__}: {error}") from error


def _mismatch(error: Any) -> _Mismatch:
    problems: list[dict[str, Any]] = error.errors() if hasattr(error, "errors") else []
    if not problems:
        return _Mismatch(str(error), "")
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problems[0]["loc"])
    return _Mismatch(problems[0]["msg"], path)


def _by_pydantic(value: Any, annotation: Any, why: TypeError) -> Any:
    """Unions of several models and the like: msgspec says TypeError, pydantic can, if the user has it."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        raise UsageError(f"JSON cannot be turned into {annotation!r}: {why}. Use a simpler annotation") from why
    try:
        return pydantic.TypeAdapter(annotation).validate_python(value)
    except ValueError as error:
        mismatch = _mismatch(error)
        raise UsageError(f"{mismatch} (at ${mismatch.path})") from error
    except Exception as error:  # pydantic refuses annotations with errors of its own
        raise UsageError(f"JSON cannot be turned into {annotation!r}: {error}. Use a simpler annotation") from error
