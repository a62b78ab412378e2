"""Stand-ins for builtins and functions that raise no audit event: they refuse agent code and pass all other calls on.

G6. Outside agent code a stand-in gives exactly what the original gives; it costs one test of a list.
G7. The stand-in of a builtin is no function: kept on a class, it does not become a method.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import Any

from perdure.kernel.guard.bans import ARGS_NEEDED, LOADED, Kind
from perdure.kernel.guard.frames import blame, caller
from perdure.kernel.guard.marks import marked
from perdure.kernel.guard.refusal import Finding, refusal

_detail_chars_max = 80


def stop(name: str, kind: Kind, detail: object = None, *, reads_only: bool = False) -> None:
    """Refuse, unless the call is not the agent's. Called by a hook, which was called by the code in question."""
    found = blame(caller(2), reads_only=reads_only)
    if found is None:
        return
    what = name if name in LOADED else f"{name}({repr(str(detail)[:_detail_chars_max]) if detail is not None else ''})"
    if found.called is not None and found.called != name:
        what = f"{found.called}(), which uses {what},"
    raise refusal([Finding(found.file, found.line, found.function, what, kind)])


class StandIn:
    """In the place of a builtin: looks, copies and pickles like it."""

    __wrapped__: Callable[..., Any]

    def __init__(self, original: Callable[..., Any], module: str, name: str) -> None:
        self.__wrapped__ = original
        self.__module__ = module
        self.__name__ = name
        self.__qualname__ = name
        self.__doc__ = original.__doc__
        self.__self__ = getattr(original, "__self__", None)
        self.__text_signature__ = getattr(original, "__text_signature__", None)

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


def watch_clock(module: Any, name: str, kind: Kind) -> None:
    """For what takes no arguments: the path that must be shortest."""
    original = getattr(module, name)
    full = f"{module.__name__}.{name}"

    class Clock(StandIn):
        def __call__(self) -> Any:
            if marked and get_ident() in marked:
                stop(full, kind, reads_only=True)
            return original()

    setattr(module, name, Clock(original, module.__name__, name))


def watch_conversion(module: Any, name: str, kind: Kind) -> None:
    """For what reads the clock only when its last argument is missing."""
    original = getattr(module, name)
    full = f"{module.__name__}.{name}"
    needed = ARGS_NEEDED[full]

    class Conversion(StandIn):
        def __call__(self, *args: Any) -> Any:
            if marked and get_ident() in marked and (len(args) < needed or args[needed - 1] is None):
                stop(full, kind, reads_only=True)
            return original(*args)

    setattr(module, name, Conversion(original, module.__name__, name))


def watch_builtin(module: Any, name: str, kind: Kind, *, reads_only: bool = False) -> None:
    original = getattr(module, name)
    full = f"{module.__name__}.{name}"

    class Builtin(StandIn):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if marked and get_ident() in marked:
                stop(full, kind, reads_only=reads_only)
            return original(*args, **kwargs)

    setattr(module, name, Builtin(original, module.__name__, name))


def watch_function(owner: Any, name: str, full: str, kind: Kind) -> None:
    """For what is written in Python, methods included: another function, which binds as the first did."""
    original = getattr(owner, name)

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if marked and get_ident() in marked:
            stop(full, kind, reads_only=True)
        return original(*args, **kwargs)

    setattr(owner, name, dressed(stand_in, original))


def watch_class_method(members: dict[str, Any], cls: type, name: str, kind: Kind) -> None:
    """For a class method of a type written in C, in the type's own dictionary."""
    original = members[name]
    full = f"{cls.__module__}.{cls.__qualname__}.{name}"

    def stand_in(cls: type, *args: Any, **kwargs: Any) -> Any:
        if marked and get_ident() in marked:
            stop(full, kind, reads_only=True)
        return original(cls, *args, **kwargs)

    members[name] = classmethod(dressed(stand_in, getattr(cls, name)))
    stand_in.__module__ = cls.__module__
    stand_in.__wrapped__ = original  # type: ignore[attr-defined]  # with it the signature is still the first one's


def dressed(stand_in: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(stand_in, attribute, getattr(original, attribute))
    stand_in.__wrapped__ = original
    made: Callable[..., Any] = stand_in
    return made
