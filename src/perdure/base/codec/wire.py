"""The byte format: plain msgpack, and one extension code for each kind of value that msgpack does not have.

W1. A code keeps its meaning for ever: stored data is read by later versions. New kinds get new codes.
W2. Plain data holds no extension, so msgspec reads and writes it without calling back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

TUPLE: Final = 1
BIG_INT: Final = 2
ODD_TEXT: Final = 3
BYTEARRAY: Final = 4
PAIRS: Final = 5
SET: Final = 6
FROZENSET: Final = 7
DATETIME: Final = 8
DATE: Final = 9
TIME: Final = 10
TIMEDELTA: Final = 11
DECIMAL: Final = 12
UUID: Final = 13
COMPLEX: Final = 14
PATH: Final = 15
ORDERED_DICT: Final = 16
DEQUE: Final = 17
FRACTION: Final = 18
ADDRESS: Final = 19
ENUM: Final = 20
DATACLASS: Final = 21
STRUCT: Final = 22
MODEL: Final = 23
NAMED_TUPLE: Final = 24

RECORDS: Final = {
    ENUM: "enum",
    DATACLASS: "dataclass",
    STRUCT: "msgspec Struct",
    MODEL: "pydantic model",
    NAMED_TUPLE: "named tuple",
}

ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes})
INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 64) - 1

Ext = msgspec.msgpack.Ext
# `type` with one argument, for checkers that take its result for half unknown.
type_of: Final = cast("Callable[[Any], type[Any]]", type)
pack: Final = msgspec.msgpack.Encoder().encode


def text_to_bytes(text: str) -> bytes:
    """UTF-8 that also takes lone surrogates, as file names and JSON have them."""
    return text.encode("utf-8", "surrogatepass")


def bytes_to_text(data: bytes | memoryview) -> str:
    return str(data, "utf-8", "surrogatepass")


def int_to_bytes(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def bytes_to_int(data: bytes | memoryview) -> int:
    return int.from_bytes(data, "big", signed=True)
