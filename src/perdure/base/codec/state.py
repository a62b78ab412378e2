"""The state of an instance: what belongs to its fields, and how stored fields fit the class as it is now.

Invariants D1 to D3 of `records.py` rest on these functions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

from perdure.base.codec.wire import type_of
from perdure.errors import NotStorable, StoreDamaged

Fields = dict[str, Any]

# `Generic[...]` leaves this on instances. It is a note of the type checker's world, not state.
_NOT_STATE: Final = frozenset({"__orig_class__"})
_NO_STATE: Final[Fields] = {}
_HEAP_TYPE: Final = 1 << 9


def hidden_slots(cls: type, names: Iterable[str]) -> tuple[str, ...]:
    """Slots of the class and its bases that are not fields."""
    known = set(names)
    found: list[str] = []
    for base in cls.__mro__:
        slots: Any = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else tuple(slots):
            name = f"_{base.__name__.lstrip('_')}{slot}" if slot.startswith("__") and not slot.endswith("__") else slot
            if name not in known and not slot.endswith("__"):
                found.append(name)
    return tuple(found)


def refuse_stray(value: Any, known: frozenset[str], hidden: tuple[str, ...]) -> None:
    """Refuse an instance with state that is not in its fields (D2). What a `cached_property` remembers is not state."""
    state: Fields = getattr(value, "__dict__", _NO_STATE)
    if state.keys() <= known and not hidden:
        return
    cls = type_of(value)
    stray = [name for name in hidden if hasattr(value, name)]
    stray += [
        name
        for name in state.keys() - known - _NOT_STATE
        if not isinstance(inspect.getattr_static(cls, name, None), functools.cached_property)
    ]
    if stray:
        names = ", ".join(sorted(stray))
        raise NotStorable(
            f"is a {cls.__qualname__} with attributes that are not fields: {names}. Make them fields, or drop them"
        )


def fit(cls: type, names: Iterable[str], stored: Fields, default: Callable[[str], Any]) -> Fields:
    """Fit stored fields to the class as it is now (D2, D3)."""
    wanted = tuple(names)
    if stored.keys() == set(wanted):
        return stored
    gone = sorted(stored.keys() - set(wanted))
    if gone:
        raise StoreDamaged(
            f"{cls.__qualname__} has no field {gone[0]!r} now, but a value of it is stored. Put the field back"
        )
    fields: Fields = {}
    for name in wanted:
        try:
            fields[name] = stored[name] if name in stored else default(name)
        except LookupError:
            raise StoreDamaged(
                f"{cls.__qualname__} has a new field {name!r} that the stored value lacks. Give the field a default"
            ) from None
    return fields


def rebuildable(cls: type) -> bool:
    """Whether `object.__new__` makes an instance: not with a built-in base, whose state is not in fields."""
    if any(not base.__flags__ & _HEAP_TYPE and base is not object for base in cls.__mro__):
        return False
    if inspect.isabstract(cls) or hasattr(cls, "__del__"):
        return True
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True
