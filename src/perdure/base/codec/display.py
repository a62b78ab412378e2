"""Stored values as plain JSON, for people and pipes: no class is needed, so no user code either.

What JSON has no word for becomes the nearest one: times and numbers as text, bytes as text or base64, records as their fields.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from typing import Any, Final, cast

import msgspec

from perdure.base.codec import scalars, wire

_LISTS = frozenset({wire.TUPLE, wire.SET, wire.FROZENSET})
_PAIRS = frozenset({wire.PAIRS, wire.ORDERED_DICT})


def show(data: bytes | memoryview) -> Any:
    """The nearest JSON to a stored value. Bytes that cannot be read are said to be so, never raised about."""
    try:
        return _plain(_decode(data))
    except Exception as exc:  # noqa: BLE001  # hostile bytes find every way to be wrong: struct, decimal, keys
        return f"(unreadable: {exc})"


def _hook(code: int, data: memoryview) -> Any:
    if code in _LISTS:
        return _decode(data)
    if code in _PAIRS:
        items = _decode(data)
        return dict(zip(map(_key, items[::2]), items[1::2], strict=True))
    if code == wire.DEQUE:
        return _decode(data)[1:]
    if code == wire.ENUM:
        _, note, *_ = _decode(data)
        return note
    if code in wire.RECORDS:
        _, _, *maps = _decode(data)
        return {name: value for fields in maps for name, value in fields.items()}
    unpack = scalars.UNPACK.get(code)
    if unpack is None:
        return f"(unknown kind {code})"
    value = unpack(data)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value if type(value) in (int, bytearray) else str(value)


_decode: Final = msgspec.msgpack.Decoder(ext_hook=_hook).decode


def _key(key: Any) -> Any:
    return key if isinstance(key, str | int | float | bool | None) else str(_plain(key))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in cast("dict[Any, Any]", value).items()}
        case list():
            return [_plain(item) for item in cast("list[Any]", value)]
        case bytes() | bytearray():
            try:
                return bytes(value).decode("ascii")
            except UnicodeDecodeError:
                return "base64:" + base64.b64encode(value).decode("ascii")
        case float() if not math.isfinite(value):
            return str(value)
        case str():
            return value.encode("utf-8", "replace").decode()
        case _:
            return value
