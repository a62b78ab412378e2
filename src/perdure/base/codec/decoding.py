"""Bytes to values.

S1. Nothing stored is trusted: whatever the bytes, the answer is a value or StoreDamaged.
S2. Stored bytes are data: a tag selects among the classes that code has registered.
    Nothing is imported, evaluated or unpickled.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.base.codec import discovery, scalars, wire
from perdure.errors import StoreDamaged


def decode(data: bytes | memoryview) -> Any:
    """The value of some bytes. Raises StoreDamaged for bytes that `encode` has not made, or a class that is gone."""
    try:
        return _decode(data)
    except (StoreDamaged, MemoryError):
        raise
    except RecursionError:
        raise StoreDamaged("A stored value is nested too deeply to be read. The bytes are not perdure's") from None
    except Exception as error:
        raise StoreDamaged(
            f"A stored value cannot be read: {error}. Restore a backup, or put the code back that wrote it"
        ) from error


def _hook(code: int, data: memoryview) -> Any:
    unpack = _UNPACK.get(code)
    if unpack is None:
        raise StoreDamaged(f"A stored value has the unknown kind {code}. Install the version of perdure that wrote it")
    return unpack(data)


_decode: Final = msgspec.msgpack.Decoder(ext_hook=_hook).decode


def _items(data: memoryview) -> list[Any]:
    items: list[Any] = _decode(data)
    if type(items) is not list:
        raise StoreDamaged("A stored container holds no items. Restore a backup")
    return items


def _pairs(data: memoryview) -> dict[Any, Any]:
    items = _items(data)
    return dict(zip(items[::2], items[1::2], strict=True))


def _deque(data: memoryview) -> collections.deque[Any]:
    length_max, *items = _items(data)
    return collections.deque(items, length_max)


def _record(code: int) -> Callable[[memoryview], object]:
    def unpack(data: memoryview) -> object:
        tag, note, *maps = _items(data)
        entry = discovery.find_tag(tag)
        if entry is None:
            raise StoreDamaged(
                f"A stored value is of the class {tag!r:.200}, which is not known here. "
                "Put the class back, or @register it"
            )
        if entry.shape.code != code:
            kinds = f"a {wire.RECORDS[code]} and is now a {wire.RECORDS[entry.shape.code]}"
            raise StoreDamaged(f"A stored value's class {tag!r} was {kinds}. Put the old class back under that name")
        return entry.shape.build(note, maps)

    return unpack


_UNPACK: Final[dict[int, Callable[[memoryview], Any]]] = {
    **scalars.UNPACK,
    wire.TUPLE: lambda data: tuple(_items(data)),
    wire.PAIRS: _pairs,
    wire.SET: lambda data: set(_items(data)),
    wire.FROZENSET: lambda data: frozenset(_items(data)),
    wire.ORDERED_DICT: lambda data: collections.OrderedDict(_pairs(data)),
    wire.DEQUE: _deque,
    **{code: _record(code) for code in wire.RECORDS},
}
