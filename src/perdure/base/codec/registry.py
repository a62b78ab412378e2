"""Which classes the codec knows, and the tag each is stored under.

G1. Only data classes of the five kinds are ever registered, and only by code: a tag from the store is looked up,
    never imported (S2).
G2. A tag belongs to one class at a time, and a class to one tag, so what is written as a class is read as that class.
G3. A tag is `module:qualname`, with the real module's name for `__main__`: a script and a worker that imports it agree.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.base.codec.models import ModelShape, model_base
from perdure.base.codec.records import DataclassShape, EnumShape, NamedTupleShape, Shape, StructShape
from perdure.base.codec.state import rebuildable

_MAIN: Final = ("__main__", "__mp_main__")


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    tag: str
    cls: type
    shape: Shape


by_class: Final[dict[type, Entry]] = {}
by_tag: Final[dict[str, Entry]] = {}
# Classes that lost their tag to another. A scan that meets them again leaves it so.
displaced: Final[set[type]] = set()
lock: Final = threading.RLock()


def shape_of(cls: type[Any]) -> Callable[[type], Shape] | None:
    """The kind of data class, or None for any other class."""
    if issubclass(cls, enum.Enum):
        return EnumShape if hasattr(cls, "_member_map_") and cls.__module__ != "enum" else None
    if issubclass(cls, msgspec.Struct):
        return StructShape if cls is not msgspec.Struct else None
    if issubclass(cls, tuple):
        return NamedTupleShape if _is_named_tuple(cls) else None
    base = model_base()
    if base is not None and issubclass(cls, base):
        return ModelShape if not cls.__module__.startswith("pydantic.") else None
    if hasattr(cls, "__dataclass_fields__") and rebuildable(cls):
        return DataclassShape
    return None


def _is_named_tuple(cls: Any) -> bool:
    fields = getattr(cls, "_fields", None)
    return isinstance(fields, tuple) and isinstance(getattr(cls, "_field_defaults", None), dict)


def tag_of(cls: type) -> str:
    module = cls.__module__
    return f"{_main_name(module) if module in _MAIN else module}:{cls.__qualname__}"


def _main_name(module: str) -> str:
    main = sys.modules.get(module)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in _MAIN:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else module


def add(cls: type, shape: Callable[[type], Shape], *, by_hand: bool) -> None:
    """Register a class. Between two classes of one tag, the one registered by hand or held by its module wins (G2)."""
    with lock:
        if cls in by_class:
            return
        tag = tag_of(cls)
        holder = by_tag.get(tag)
        if holder is not None:
            if not by_hand and (cls in displaced or _held_by_module(holder.cls)):
                return
            del by_class[holder.cls]
            displaced.add(holder.cls)
        displaced.discard(cls)
        entry = Entry(tag, cls, shape(cls))
        by_class[cls] = by_tag[tag] = entry


def _held_by_module(cls: type) -> bool:
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        # `vars`, because getattr could run a module's or a class's own `__getattr__`.
        found = getattr(found, "__dict__", {}).get(name)
    return found is cls
