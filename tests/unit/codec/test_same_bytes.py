"""E2: equal values give equal bytes in every process. Argument digests and idempotent starts depend on it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from perdure.base.codec import encode, wire
from perdure.base.codec.wire import Ext

SRC = str(Path(__file__).parents[3] / "src")

CHILD = textwrap.dedent(
    """
    import dataclasses, datetime, decimal, enum, pathlib, uuid
    import pydantic
    from perdure.base.codec import encode, register

    @register
    class Color(enum.StrEnum):
        RED = "r"
    @register
    @dataclasses.dataclass(frozen=True)
    class D:
        a: frozenset
    @register
    class M(pydantic.BaseModel, extra="allow"):
        one: int = 1
        two: set = set()

    words = {f"word {n}" for n in range(100)}
    print(encode([
        words, frozenset(words), {(w, len(w)) for w in words}, {D(frozenset(words)), D(frozenset("ab"))},
        M(two=words, one=3, **{"x": frozenset(words), "y": 2}), {Color.RED, 1, None, pathlib.Path("p")},
        {w: {w} for w in sorted(words)}, decimal.Decimal("1e5"), uuid.UUID(int=1), {"\\ud800", "a"}, {2**70, 1},
    ]).hex())
    """
)


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    """Sets of text order themselves by the process's hash seed; their bytes do not."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", CHILD],
            env={"PYTHONPATH": SRC, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1000


def test_set_built_in_another_order_has_the_same_bytes() -> None:
    """Also when elements collide in the table."""
    assert encode({0, 8, 16, 24}) == encode({24, 16, 8, 0}) == encode(set(range(0, 32, 8)))


def test_dict_keeps_its_order() -> None:
    """Order is part of a dict's value here."""
    assert encode({"a": 1, "b": 2}) != encode({"b": 2, "a": 1})


def test_values_that_are_equal_but_not_the_same_have_other_bytes() -> None:
    """1, 1.0 and True are equal, but each returns as itself."""
    assert len({encode(1), encode(1.0), encode(True)}) == 3


@pytest.mark.parametrize("value", [None, 1, -1.5, "x", b"x", [1, {"a": None}], {"k": [True], 1: 2}], ids=range(7))
def test_plain_values_are_plain_msgpack(value: object) -> None:
    """Any msgpack reader can read them (W2)."""
    assert encode(value) == msgspec.msgpack.encode(value)


def test_the_format_is_kept() -> None:
    """W1: stored bytes are read by later versions. If this fails, old stores can no longer be read."""
    assert encode((1, "a")) == wire.pack(Ext(1, b"\x92\x01\xa1a"))
    assert encode({1}) == wire.pack(Ext(6, b"\x91\x01"))
    assert encode(2**64) == wire.pack(Ext(2, b"\x01" + bytes(8)))
    names = """
    TUPLE BIG_INT ODD_TEXT BYTEARRAY PAIRS SET FROZENSET DATETIME DATE TIME TIMEDELTA DECIMAL UUID COMPLEX PATH
    ORDERED_DICT DEQUE FRACTION ADDRESS ENUM DATACLASS STRUCT MODEL NAMED_TUPLE
    """
    for number, name in enumerate(names.split(), start=1):
        assert getattr(wire, name) == number
