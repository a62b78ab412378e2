"""Whatever storable value is drawn, it returns exactly and always has the same bytes."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import zoneinfo
from typing import Any, NamedTuple

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.base.codec import decode, encode, register
from perdure.base.codec.encoding import is_plain


@register
class Suit(enum.Enum):
    CLUBS = 1
    HEARTS = 2


@register
@dataclasses.dataclass(frozen=True)
class Card:
    suit: Any
    rank: Any = 0


@register
class Hand(msgspec.Struct, frozen=True):
    cards: Any


@register
class At(NamedTuple):
    x: Any
    y: Any


text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
plain_atoms = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
zones = (
    st.none()
    | st.just(dt.UTC)
    | st.sampled_from([zoneinfo.ZoneInfo("Asia/Kathmandu"), dt.timezone(dt.timedelta(minutes=-90))])
)
atoms = (
    plain_atoms
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | text
    | st.datetimes(timezones=zones)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.uuids()
    | st.complex_numbers(allow_nan=False)
    | st.ip_addresses()
    | st.sampled_from(Suit)
)
keys = st.recursive(
    atoms,
    lambda inner: (
        st.tuples(inner, inner)
        | st.frozensets(inner, max_size=3)
        | st.builds(Card, inner, inner)
        | st.builds(At, inner, inner)
    ),
    max_leaves=4,
)
values = st.recursive(
    keys,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=3).map(collections.deque)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.sets(keys, max_size=4)
        | st.builds(Card, inner, inner)
        | st.builds(Hand, inner)
    ),
    max_leaves=20,
)
plain = st.recursive(
    plain_atoms,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain_atoms, inner, max_size=4),
    max_leaves=20,
)


def shape(value: Any) -> Any:
    """The value with the type of every part beside it, so that == compares types and order too."""
    if isinstance(value, dict):
        return dict, [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, list | tuple | collections.deque):
        return type(value), [shape(part) for part in value]
    if isinstance(value, set | frozenset):
        return type(value), sorted(map(encode, value)), value
    if isinstance(value, Card):
        return Card, shape(value.suit), shape(value.rank)
    if isinstance(value, Hand):
        return Hand, shape(value.cards)
    return type(value), value if type(value) is int else repr(value)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(values)
def test_any_value_returns_exactly(value: Any) -> None:
    """Types, order and signs of zero included, and its copy has the same bytes."""
    data = encode(value)
    back = decode(data)
    assert shape(back) == shape(value)
    assert encode(back) == data


@settings(max_examples=200, deadline=None, derandomize=True)
@given(plain)
def test_plain_check_is_right_about_plain_values(value: Any) -> None:
    """Plain values take the fast way and return exactly."""
    assert is_plain(value)
    assert shape(decode(encode(value))) == shape(value)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    plain,
    st.sampled_from([(), set(), Suit.CLUBS, dt.date(2000, 1, 1), bytearray(), 1j]),
    st.randoms(use_true_random=False),
)
def test_plain_check_sees_what_is_not_plain(value: Any, other: Any, rng: Any) -> None:
    """One part that is not plain, anywhere, is never taken for plain."""
    for _ in range(rng.randint(1, 4)):
        siblings = [value] * rng.randint(0, 2)
        other = rng.choice([[*siblings, other], {"k": other, "s": siblings}, {1: siblings, None: other}])
    assert not is_plain(other)
    assert shape(decode(encode(other))) == shape(other)
