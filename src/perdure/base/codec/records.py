"""How instances of the users' data classes are taken apart and rebuilt: dataclasses, Structs, named tuples, enums.

D1. Rebuilding runs no `__init__`, no `__post_init__` and no validator; it sets what was stored.
D2. Nothing is dropped: state that is not a field refuses to be stored, a field that is gone refuses to be read.
D3. A field the class gained since takes its default; without one the read is refused, naming the field.

A record travels as `[tag, note, *maps]`: the maps hold fields by name; the note, a flat list or an atom, holds what a
map cannot say.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

import msgspec

from perdure.base.codec import wire
from perdure.base.codec.state import Fields, fit, hidden_slots, refuse_stray
from perdure.errors import NotStorable, StoreDamaged

Parts = tuple[object, list[Fields]]


# Past any `__new__` or `__iter__` of the user's (D1).
_new_object: Final = cast("Callable[[type], object]", object.__new__)
_new_tuple: Final = cast("Callable[[type, list[Any]], object]", vars(tuple)["__new__"])
_tuple_items: Final = cast("Callable[[Any], Iterable[Any]]", vars(tuple)["__iter__"])


class Shape(Protocol):
    """One class's way into a record and back."""

    code: int

    def take(self, value: Any) -> Parts: ...
    def build(self, note: Any, maps: list[Fields]) -> object: ...


class DataclassShape:
    code = wire.DATACLASS

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.fields = {field.name: field for field in dataclasses.fields(cls)}
        self.known = frozenset(self.fields)
        self.hidden = hidden_slots(cls, self.fields)

    def take(self, value: Any) -> Parts:
        fields: Fields = {}
        unset: list[str] = []
        for name in self.fields:
            try:
                fields[name] = getattr(value, name)
            except AttributeError:
                unset.append(name)  # `field(init=False)` that nobody has set yet
        refuse_stray(value, self.known, self.hidden)
        return unset or None, [fields]

    def build(self, note: Any, maps: list[Fields]) -> object:
        (stored,) = maps
        unset: list[str] = note or []
        if unset or stored.keys() != self.known:
            stored = fit(self.cls, [name for name in self.fields if name not in unset], stored, self._default)
        made = _new_object(self.cls)
        for name, value in stored.items():
            object.__setattr__(made, name, value)
        return made

    def _default(self, name: str) -> Any:
        field = self.fields[name]
        if field.default is not dataclasses.MISSING:
            return field.default
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        raise LookupError(name)


class _Quiet(msgspec.Struct):
    """Stands before a user's Struct in a twin's bases and keeps its hooks from running."""

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __post_init__(self) -> None:
        pass


class StructShape:
    """Structs.

    Things that don't work: `object.__new__` (msgspec forbids it), `copy` (needs an instance), `replace` (runs hooks).
    Solution: an instance of a twin class without hooks and with the same layout, whose class is then set to the user's.
    """

    code = wire.STRUCT

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.names: tuple[str, ...] = cls.__struct_fields__
        self.known = frozenset(self.names)
        self.hidden = hidden_slots(cls, self.names)

    def take(self, value: Any) -> Parts:
        try:
            fields = {name: getattr(value, name) for name in self.names}
        except AttributeError as error:
            raise NotStorable(
                f"is a {self.cls.__qualname__} with a deleted field ({error}). Set every field before storing it"
            ) from None
        refuse_stray(value, self.known, self.hidden)
        return None, [fields]

    def build(self, note: Any, maps: list[Fields]) -> object:
        (stored,) = maps
        fields = fit(self.cls, self.names, stored, self._default)
        if not hasattr(self.cls, "__post_init__"):
            return self.cls(**fields)
        made = self._twin(**fields)
        _set_class(made, self.cls)
        return cast("object", made)

    @functools.cached_property
    def _twin(self) -> Any:
        config = self.cls.__struct_config__
        return type(self.cls)(
            self.cls.__name__,
            (_Quiet, self.cls),
            {"__module__": __name__},
            frozen=config.frozen,
            gc=config.gc,
            weakref=config.weakref,
            dict=config.dict,
        )

    def _default(self, name: str) -> Any:
        defaults: tuple[Any, ...] = self.cls.__struct_defaults__
        index = self.names.index(name) - (len(self.names) - len(defaults))
        default = defaults[index] if index >= 0 else msgspec.NODEFAULT
        if default is msgspec.NODEFAULT:
            raise LookupError(name)
        # msgspec keeps a factory in a wrapper of its own, with one attribute.
        return (
            default.factory()
            if type(default).__module__ == "msgspec._core" and hasattr(default, "factory")
            else default
        )


_set_class: Final[Callable[[object, type], None]] = object.__dict__["__class__"].__set__


class NamedTupleShape:
    code = wire.NAMED_TUPLE

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.names: tuple[str, ...] = cls._fields
        self.known = frozenset(self.names)
        self.hidden = hidden_slots(cls, self.names)

    def take(self, value: Any) -> Parts:
        items = list(_tuple_items(value))
        if len(items) != len(self.names):
            raise NotStorable(
                f"is a {self.cls.__qualname__} of {len(items)} items where it has {len(self.names)} fields. "
                "Build it with all of them"
            )
        refuse_stray(value, self.known, self.hidden)
        return None, [dict(zip(self.names, items, strict=True))]

    def build(self, note: Any, maps: list[Fields]) -> object:
        (stored,) = maps
        fields = fit(self.cls, self.names, stored, self.cls._field_defaults.__getitem__)
        return _new_tuple(self.cls, [fields[name] for name in self.names])


# Flag's own way to combine bits, past any `_missing_` of the user's (D1).
_combine: Final[Callable[[type, int], Any]] = enum.Flag.__dict__["_missing_"].__func__


class EnumShape:
    """Members travel by name; combined flags as the names of their bits and what no name covers."""

    code = wire.ENUM

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.members: dict[str, Any] = cls._member_map_

    def take(self, value: Any) -> Parts:
        name: str | None = value._name_
        if name is not None and self.members.get(name) is value:
            return name, []
        number: int = value._value_
        names = [name for name, bit in self._bits() if number & bit]
        return [number & ~self._number(names), *names], []

    def build(self, note: Any, maps: list[Fields]) -> object:
        if type(note) is str:
            return self._member(note)
        rest, *names = note
        if not issubclass(self.cls, enum.Flag):
            raise StoreDamaged(
                f"{self.cls.__qualname__} was a Flag when it was stored and is none now. Put the Flag back"
            )
        number = self._number(names) | rest
        made: Any = self.cls._value2member_map_.get(number)
        if made is None:
            made = _combine(self.cls, number)
        if type(made) is not self.cls:
            raise StoreDamaged(
                f"{self.cls.__qualname__} cannot hold the stored value {number!r} now. Put its old members back"
            )
        return cast("object", made)

    def _bits(self) -> Iterable[tuple[str, int]]:
        values = ((name, member._value_) for name, member in self.members.items())
        return ((name, bit) for name, bit in values if isinstance(bit, int) and bit > 0 and bit & (bit - 1) == 0)

    def _number(self, names: list[str]) -> int:
        number = 0
        for name in names:
            number |= self._member(name)._value_
        return number

    def _member(self, name: str) -> Any:
        try:
            return self.members[name]
        except KeyError:
            raise StoreDamaged(
                f"{self.cls.__qualname__} has no member {name!r} now, but one is stored. Put the member back"
            ) from None
