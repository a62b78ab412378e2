"""Values of the standard library that hold no other values, one pair of small functions each.

V1. Unpacking calls only constructors of the standard library, which check their arguments.
V2. A time zone is looked up by a name of harmless form in the system's data; it never becomes an import.
"""

from __future__ import annotations

import datetime as dt
import functools
import ipaddress
import pathlib
import re
import struct
import sys
import uuid
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from perdure.base import limits
from perdure.base.codec import wire
from perdure.base.codec.wire import Ext, type_of
from perdure.errors import NotStorable, StoreDamaged

_DATETIME = struct.Struct(">HBBBBBIB")
_DATE = struct.Struct(">HBB")
_TIME = struct.Struct(">BBBIB")
_TIMEDELTA = struct.Struct(">iiI")
_OFFSET = struct.Struct(">iI")
_COMPLEX = struct.Struct(">dd")
_ZONE_NAME = re.compile(r"[A-Za-z0-9_+-]{1,64}(?:/[A-Za-z0-9_+-]{1,64}){0,4}")

_PATHS: Final[dict[bytes, type[pathlib.PurePath]]] = {
    b"p": pathlib.PosixPath,
    b"w": pathlib.WindowsPath,
    b"P": pathlib.PurePosixPath,
    b"W": pathlib.PureWindowsPath,
}
_PATH_MARKS: Final = {kind: mark for mark, kind in _PATHS.items()}
_ADDRESSES: Final[dict[bytes, Callable[[str], object]]] = {
    b"4": ipaddress.IPv4Address,
    b"6": ipaddress.IPv6Address,
    b"n": ipaddress.IPv4Network,
    b"N": ipaddress.IPv6Network,
    b"i": ipaddress.IPv4Interface,
    b"I": ipaddress.IPv6Interface,
}
_ADDRESS_MARKS: Final[dict[Any, bytes]] = {kind: mark for mark, kind in _ADDRESSES.items()}


def _pydantic_zone() -> Any:
    """The fixed offset of pydantic's own, which its models hold after parsing, if pydantic is loaded."""
    return getattr(sys.modules.get("pydantic_core"), "TzInfo", None)


def _zone_to_bytes(zone: Any) -> bytes:
    if zone is None:
        return b""
    kind = type_of(zone)
    if zone is dt.UTC:
        return b"U"
    if kind is dt.timezone:
        offset, *name = zone.__getinitargs__()  # tells a given name from a derived one
        head = b"O" + _offset_to_bytes(offset)
        return head + b":" + wire.text_to_bytes(name[0]) if name else head
    if kind is zoneinfo.ZoneInfo and zone.key is not None:
        return b"Z" + wire.text_to_bytes(zone.key)
    if kind is _pydantic_zone():
        return b"P" + _offset_to_bytes(zone.utcoffset(None) or dt.timedelta())
    raise NotStorable(
        f"is a time in a zone of type {kind.__module__}.{kind.__qualname__}. "
        "Use datetime.timezone or a named zoneinfo.ZoneInfo"
    )


def _offset_to_bytes(offset: dt.timedelta) -> bytes:
    return _OFFSET.pack(offset.days * 86_400 + offset.seconds, offset.microseconds)


def _offset_from_bytes(data: bytes) -> dt.timedelta:
    seconds, microseconds = _OFFSET.unpack(data)
    return dt.timedelta(seconds=seconds, microseconds=microseconds)


def _zone_from_bytes(data: bytes) -> dt.tzinfo | None:
    mark, rest = data[:1], data[1:]
    match mark:
        case b"":
            return None
        case b"U":
            return dt.UTC
        case b"O":
            offset = _offset_from_bytes(rest[:8])
            return dt.timezone(offset, wire.bytes_to_text(rest[9:])) if rest[8:9] else dt.timezone(offset)
        case b"Z":
            return _zone(wire.bytes_to_text(rest))
        case b"P":
            kind = _pydantic_zone()
            if kind is None:
                raise StoreDamaged(
                    "a stored time has a time zone of pydantic's, which is not imported here. Import pydantic"
                )
            zone: dt.tzinfo = kind(int(_offset_from_bytes(rest).total_seconds()))
            return zone
        case _:
            raise StoreDamaged(f"a stored time has an unknown kind of time zone {mark!r}")


def _zone(name: str) -> dt.tzinfo:
    if not _is_known_zone(name):
        raise StoreDamaged(
            f"a stored time is in zone {name[:80]!r}, which this machine does not know. Install the package tzdata"
        )
    return zoneinfo.ZoneInfo(name)  # V2: only names that exist get here


@functools.lru_cache(maxsize=1024)
def _is_known_zone(name: str) -> bool:
    return _ZONE_NAME.fullmatch(name) is not None and (
        any(pathlib.Path(folder, name).is_file() for folder in zoneinfo.TZPATH) or name in _installed_zones()
    )


@functools.cache
def _installed_zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _pack_datetime(x: dt.datetime) -> bytes:
    return _DATETIME.pack(x.year, x.month, x.day, x.hour, x.minute, x.second, x.microsecond, x.fold) + _zone_to_bytes(
        x.tzinfo
    )


def _unpack_datetime(data: memoryview) -> dt.datetime:
    year, month, day, hour, minute, second, microsecond, fold = _DATETIME.unpack(data[:12])
    zone = _zone_from_bytes(bytes(data[12:]))
    return dt.datetime(year, month, day, hour, minute, second, microsecond, zone, fold=fold)


def _pack_time(x: dt.time) -> bytes:
    return _TIME.pack(x.hour, x.minute, x.second, x.microsecond, x.fold) + _zone_to_bytes(x.tzinfo)


def _unpack_time(data: memoryview) -> dt.time:
    hour, minute, second, microsecond, fold = _TIME.unpack(data[:8])
    return dt.time(hour, minute, second, microsecond, _zone_from_bytes(bytes(data[8:])), fold=fold)


def _unpack_timedelta(data: memoryview) -> dt.timedelta:
    days, seconds, microseconds = _TIMEDELTA.unpack(data)
    return dt.timedelta(days, seconds, microseconds)


def _pack_decimal(x: Decimal) -> bytes:
    # The thread's decimal context may print a small `e`; the bytes must not depend on it.
    return str(x).upper().encode("ascii")


def _pack_uuid(x: uuid.UUID) -> bytes:
    known = x.is_safe is not uuid.SafeUUID.unknown
    return x.bytes + (b"S" if x.is_safe is uuid.SafeUUID.safe else b"U") if known else x.bytes


def _unpack_uuid(data: memoryview) -> uuid.UUID:
    marks = {b"": uuid.SafeUUID.unknown, b"S": uuid.SafeUUID.safe, b"U": uuid.SafeUUID.unsafe}
    return uuid.UUID(bytes=bytes(data[:16]), is_safe=marks[bytes(data[16:])])


def _pack_path(x: pathlib.PurePath) -> bytes:
    kind, text = type(x), str(x)
    if kind(text).parts != x.parts:
        raise NotStorable(f"is a path whose text {text!r} means another path. Pass its parts")
    return _PATH_MARKS[kind] + wire.text_to_bytes(text)


def _unpack_path(data: memoryview) -> pathlib.PurePath:
    kind = _PATHS[bytes(data[:1])]
    try:
        return kind(wire.bytes_to_text(data[1:]))
    except NotImplementedError:
        raise StoreDamaged(
            f"a stored {kind.__name__} cannot exist on this system. Store a PurePath to share it between systems"
        ) from None


def _pack_fraction(x: Fraction) -> bytes:
    top, bottom = x.numerator, x.denominator
    if max(top.bit_length(), bottom.bit_length()) > limits.bigint_bits_max:
        raise NotStorable(too_many_bits(max(top.bit_length(), bottom.bit_length())))
    head = wire.int_to_bytes(top)
    return struct.pack(">I", len(head)) + head + wire.int_to_bytes(bottom)


def _unpack_fraction(data: memoryview) -> Fraction:
    (size,) = struct.unpack(">I", data[:4])
    if len(data) > 16 + limits.bigint_bits_max // 4:
        raise StoreDamaged("a stored fraction is over the limit bigint_bits_max")
    return Fraction(wire.bytes_to_int(data[4 : 4 + size]), wire.bytes_to_int(data[4 + size :]))


def _unpack_big_int(data: memoryview) -> int:
    if len(data) > limits.bigint_bits_max // 8 + 1:
        raise StoreDamaged("a stored number is over the limit bigint_bits_max")
    return wire.bytes_to_int(data)


def too_many_bits(bits: int) -> str:
    limit = f"{limits.bigint_bits_max:,} (bigint_bits_max)"
    return f"is a number of {bits:,} bits; the limit is {limit}. Write it to a file in a step"


def _ext(code: int, to_bytes: Callable[[Any], bytes]) -> Callable[[Any], Ext]:
    return lambda x: Ext(code, to_bytes(x))


PACK: Final[dict[type, Callable[[Any], Ext]]] = {
    bytearray: _ext(wire.BYTEARRAY, bytes),
    dt.datetime: _ext(wire.DATETIME, _pack_datetime),
    dt.date: _ext(wire.DATE, lambda x: _DATE.pack(x.year, x.month, x.day)),
    dt.time: _ext(wire.TIME, _pack_time),
    dt.timedelta: _ext(wire.TIMEDELTA, lambda x: _TIMEDELTA.pack(x.days, x.seconds, x.microseconds)),
    Decimal: _ext(wire.DECIMAL, _pack_decimal),
    uuid.UUID: _ext(wire.UUID, _pack_uuid),
    complex: _ext(wire.COMPLEX, lambda x: _COMPLEX.pack(x.real, x.imag)),
    Fraction: _ext(wire.FRACTION, _pack_fraction),
    **dict.fromkeys(_PATH_MARKS, _ext(wire.PATH, _pack_path)),
    **{
        kind: _ext(wire.ADDRESS, lambda x: _ADDRESS_MARKS[type(x)] + wire.text_to_bytes(str(x)))
        for kind in _ADDRESS_MARKS
    },
}

UNPACK: Final[dict[int, Callable[[memoryview], object]]] = {
    wire.BIG_INT: _unpack_big_int,
    wire.ODD_TEXT: wire.bytes_to_text,
    wire.BYTEARRAY: bytearray,
    wire.DATETIME: _unpack_datetime,
    wire.DATE: lambda data: dt.date(*_DATE.unpack(data)),
    wire.TIME: _unpack_time,
    wire.TIMEDELTA: _unpack_timedelta,
    wire.DECIMAL: lambda data: Decimal(str(data, "ascii")),
    wire.UUID: _unpack_uuid,
    wire.COMPLEX: lambda data: complex(*_COMPLEX.unpack(data)),
    wire.PATH: _unpack_path,
    wire.FRACTION: _unpack_fraction,
    wire.ADDRESS: lambda data: _ADDRESSES[bytes(data[:1])](wire.bytes_to_text(data[1:])),
}
