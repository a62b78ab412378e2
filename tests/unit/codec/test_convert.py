"""JSON from the command line becomes what an agent's annotations ask for, or an error that says where it is wrong."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import inspect
import threading
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from perdure.base.codec import convert
from perdure.errors import UsageError


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Item:
    name: str
    price: Decimal = Decimal(1)


class Order(pydantic.BaseModel):
    items: list[Item]
    note: str | None = None


class Cat(pydantic.BaseModel):
    meow: int


class Dog(pydantic.BaseModel):
    bark: int


class Box(msgspec.Struct):
    order: Order
    where: Path | None = None


class Movie(TypedDict):
    year: int


@pytest.mark.parametrize(
    ("value", "annotation", "result"),
    [
        ({"any": [1]}, Any, {"any": [1]}),
        (1, inspect.Parameter.empty, 1),
        (1, int, 1),
        (1, float, 1.0),
        (None, int | None, None),
        ([1, 2], tuple[int, ...], (1, 2)),
        (["a"], set[str], {"a"}),
        ("red", Color, Color.RED),
        ("2026-01-01T00:00:00Z", dt.datetime, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        ("1.50", Decimal, Decimal("1.50")),
        ("00000000-0000-0000-0000-000000000001", uuid.UUID, uuid.UUID(int=1)),
        ("a/b", Path, Path("a/b")),
        ("1/3", Fraction, Fraction(1, 3)),
        ({"name": "x", "price": "2"}, Item, Item("x", Decimal(2))),
        ({"year": 1}, Movie, {"year": 1}),
        ({"items": [{"name": "x"}]}, Order, Order(items=[Item("x")])),
        ([{"order": {"items": []}, "where": "p"}], list[Box], [Box(Order(items=[]), Path("p"))]),
        ({"bark": 1}, Cat | Dog, Dog(bark=1)),
    ],
    ids=range(18),
)
def test_json_becomes_the_annotated_type(value: Any, annotation: Any, result: Any) -> None:
    """What msgspec knows, what pydantic knows, and both inside each other."""
    made = convert(value, annotation)
    assert made == result
    assert type(made) is type(result)


@pytest.mark.parametrize(
    ("value", "annotation", "path"),
    [
        ("x", int, r"at \$\)"),
        ([1, "x"], list[int], r"at \$\[1\]\)"),
        ({"name": 1}, Item, r"at \$\.name\)"),
        ({}, Item, r"`name`"),
        ({"items": [{"name": []}]}, Order, r"at \$\.items\[0\]\.name\)"),
        ([{"order": {"items": 1}}], list[Box], r"at \$\[0\]\.order\.items\)"),
        ({"bark": "x"}, Cat | Dog, r"at \$"),
        ("1/0", Fraction, r"at \$"),
        ({}, type(threading.Lock()), r"cannot be given as JSON"),
        (1, "int", r"is text"),
    ],
    ids=range(10),
)
def test_mismatch_says_where(value: Any, annotation: Any, path: str) -> None:
    """The error is the caller's, and names the place."""
    with pytest.raises(UsageError, match=path):
        convert(value, annotation)
