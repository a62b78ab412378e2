"""Values of the standard library return exactly: same value, same type, same order."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import ipaddress
import math
import pathlib
import struct
import threading
import uuid
import zoneinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypedDict

import pydantic
import pytest

from perdure.base import limits
from perdure.base.codec import decode, encode

ROME = zoneinfo.ZoneInfo("Europe/Rome")

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    2**5000,
    -(2**limits.bigint_bits_max) + 1,
    1.5,
    -0.0,
    math.inf,
    -math.inf,
    5e-324,
    "",
    "Grüße 🜚",
    "lone \ud800 surrogate",
    "\ud83d\ude00",
    b"",
    b"\x00\xff",
    bytearray(b"ab"),
    [],
    [1, [2, [3, {}]]],
    (),
    (1, "a", (None,)),
    [(1,), {"a": (2,)}],
    {},
    {"b": 1, "a": 2},
    {1: "int", 1.5: "float", None: "none", b"k": "bytes", False: "bool"},
    {(1, 2): "tuple", 2**70: "big", "\udfff": "odd", frozenset({1}): "set", dt.date(2020, 1, 1): "date"},
    set(),
    {1, "a", None, (1, 2), 2.5, b"x"},
    frozenset({frozenset(), frozenset({1})}),
    dt.datetime(2026, 11, 18, 21, 30, 1, 999_999),
    dt.datetime.min,
    dt.datetime.max,
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=-30, microseconds=7))),
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(0), "")),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=ROME),
    dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ROME),
    dt.datetime(2026, 10, 25, 2, 30, fold=1),
    dt.date.min,
    dt.date(9999, 12, 31),
    dt.time(23, 59, 59, 999_999),
    dt.time(1, fold=1, tzinfo=ROME),
    dt.timedelta.min,
    dt.timedelta.max,
    dt.timedelta(microseconds=-1),
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("1E+999999"),
    Decimal("Infinity"),
    Decimal(10) ** -40,
    uuid.UUID(int=5),
    uuid.UUID(int=6, is_safe=uuid.SafeUUID.safe),
    1 - 2j,
    complex(-0.0, math.inf),
    pathlib.Path("a/b"),
    pathlib.PosixPath("/"),
    pathlib.PurePosixPath(""),
    pathlib.PureWindowsPath("C:\\x\\y"),
    pathlib.Path("bad\udcff"),
    collections.OrderedDict([("b", 1), ("a", (2,))]),
    collections.OrderedDict({(1,): 1}),
    collections.deque([1, (2,)], 5),
    collections.deque(),
    Fraction(-1, 3),
    Fraction(2**100, 3),
    ipaddress.ip_address("10.0.0.1"),
    ipaddress.ip_address("fe80::1%eth0"),
    ipaddress.ip_network("10.0.0.0/8"),
    ipaddress.ip_network("2001:db8::/32"),
    ipaddress.ip_interface("10.0.0.1/8"),
    ipaddress.ip_interface("::1/128"),
]


def same(a: Any, b: Any) -> bool:
    """Equal, of equal types all the way down, in the same order."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple | collections.deque):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, set | frozenset):
        return a == b and sorted(map(encode, a)) == sorted(map(encode, b))
    if isinstance(a, float):
        return struct.pack(">d", a) == struct.pack(">d", b)
    return bool(a == b) and (type(a) is int or repr(a) == repr(b))


@pytest.mark.parametrize("value", VALUES, ids=[f"{i}-{type(value).__name__}" for i, value in enumerate(VALUES)])
def test_value_returns_exactly(value: Any) -> None:
    """Alone, inside containers, and as bytes that say the same when written again."""
    data = encode(value)
    assert same(decode(data), value)
    assert same(decode(memoryview(data)), value)
    assert same(decode(encode([value, {"k": (value,)}])), [value, {"k": (value,)}])
    assert encode(decode(data)) == data


def test_nan_returns_with_its_bits() -> None:
    """Also a NaN that is not the usual one, and a Decimal's signalling NaN with its payload."""
    odd = struct.unpack(">d", b"\x7f\xf8\x00\x00\x00\x00\x00\x07")[0]
    assert struct.pack(">d", decode(encode(odd))) == struct.pack(">d", odd)
    assert decode(encode(Decimal("-sNaN12"))).as_tuple() == Decimal("-sNaN12").as_tuple()


def test_two_nans_as_keys_stay_two() -> None:
    """Keys that are not equal to themselves are kept in order."""
    back = decode(encode({math.nan: 1, float("nan"): 2}))
    assert list(back.values()) == [1, 2]


def test_fold_and_zone_are_kept() -> None:
    """The second 2:30 of the night when clocks go back stays the second, in its named zone."""
    back = decode(encode(dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ROME)))
    assert (back.fold, back.tzinfo, back.utcoffset()) == (1, ROME, dt.timedelta(hours=1))


def test_decimal_bytes_do_not_depend_on_the_context() -> None:
    """The thread's decimal context changes how a Decimal prints, not how it is stored."""
    usual = encode(Decimal("1E+30"))
    with decimal.localcontext() as context:
        context.capitals, context.prec = 0, 2
        assert encode(Decimal("1E+30")) == usual
        assert decode(encode(Decimal("1.23456789"))) == Decimal("1.23456789")


def test_typed_dict_is_a_plain_dict() -> None:
    """A TypedDict needs no registration and costs what a dict costs."""

    class Movie(TypedDict):
        title: str
        year: int

    assert decode(encode(Movie(title="Stalker", year=1979))) == {"title": "Stalker", "year": 1979}


def test_pydantic_time_zone_is_kept() -> None:
    """A time that pydantic parsed has a zone type of pydantic's own."""
    value = pydantic.TypeAdapter(dt.datetime).validate_python("2026-01-01T00:00:00+02:00")
    back = decode(encode(value))
    assert (back, type(back.tzinfo), back.utcoffset()) == (value, type(value.tzinfo), dt.timedelta(hours=2))


def test_copy_is_independent() -> None:
    """What is decoded shares nothing with what was encoded."""
    value: dict[str, Any] = {"a": [1]}
    back = decode(encode(value))
    value["a"].append(2)
    assert back == {"a": [1]}


def test_threads_do_not_disturb_each_other() -> None:
    """One encoder and one decoder serve all threads."""
    wrong: list[Any] = []

    def work(number: int) -> None:
        value = [(number, {number}, dt.date(2000 + number, 1, 1), [(n,) for n in range(20)])]
        wrong.extend(back for _ in range(200) if (back := decode(encode(value))) != value)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
