"""What cannot be stored exactly is refused when it is written, with the path inside the value and a remedy."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import io
import socket
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.base import limits
from perdure.base.codec import decode, encode, register
from perdure.errors import NotStorable, PayloadTooLarge


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Row(dict[str, int]):
    pass


class Thing:
    pass


@dataclasses.dataclass
class Unknown:
    a: int


@register
@dataclasses.dataclass
class Holder:
    lock: Any


async def later() -> None: ...


def generator() -> Iterator[int]:
    yield 1


BAD: list[tuple[str, Any, str]] = [
    ("lock", threading.Lock(), "create it where it is used"),
    ("rlock", threading.RLock(), "create it where it is used"),
    ("event", threading.Event(), "create it where it is used"),
    ("asyncio lock", asyncio.Lock(), "create it where it is used"),
    ("generator", generator(), "list"),
    ("iterator", iter([1]), "list"),
    ("range", range(3), "list"),
    ("keys", {}.keys(), "list"),
    ("file", io.StringIO(), "path"),
    ("function", later, "returns"),
    ("lambda", lambda: 1, "returns"),
    ("builtin", len, "returns"),
    ("method", [].append, "returns"),
    ("class", Thing, "name"),
    ("module", types, "module"),
    ("exception", ValueError("x"), "message"),
    ("object", Thing(), "dataclass"),
    ("bare object", object(), "dataclass"),
    ("ellipsis", ..., "dataclass"),
    ("memoryview", memoryview(b"x"), "bytes"),
    ("str subclass", Text("x"), "str"),
    ("int subclass", Number(1), "int"),
    ("dict subclass", Row(a=1), "dict"),
    ("defaultdict", collections.defaultdict(int), "dict"),
    ("counter", collections.Counter("a"), "dict"),
    ("mapping", types.MappingProxyType({}), "dict"),
    ("unregistered", Unknown(1), "register"),
]


@pytest.mark.parametrize(("bad", "remedy"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_refused_with_a_remedy_wherever_it_stands(bad: Any, remedy: str) -> None:
    """Alone, in a list, as a value, in a tuple and in a data class; the path says where."""
    for value, path in [
        (bad, "$"),
        ([0, bad], "$[1]"),
        ({"items": [0, 1, {"lock": bad}]}, "$.items[2].lock"),
        ({"a b": (bad,)}, "$['a b'][0]"),
        ({3: {None: bad}}, "$[3][None]"),
        ([Holder(bad)], "$[0].lock"),
    ]:
        with pytest.raises(NotStorable, match=remedy) as caught:
            encode(value)
        assert caught.value.path == path
        assert f"cannot store {path}:" in str(caught.value)


def test_socket_and_coroutine_are_refused() -> None:
    """Both are closed here, so they are not among the parametrised ones."""
    with socket.socket() as sock, pytest.raises(NotStorable, match="create it where it is used"):
        encode(sock)
    coroutine = later()
    with pytest.raises(NotStorable, match="Await it"):
        encode([coroutine])
    coroutine.close()


@pytest.mark.parametrize(
    "key",
    [Text("x"), Number(1), enum.IntEnum("Local", "A").A, enum.StrEnum("Word", "A").A],
    ids=["str", "int", "enum", "word"],
)
def test_key_that_equals_a_plain_key_is_still_seen(key: Any) -> None:
    """However the dict was made: keys of exact str are the only ones the fast check may leave out."""
    made = [{key: 1}, {"z": 1, key: 2}, dict.fromkeys([key]), {"z": 0} | {key: 1}, dict.fromkeys(["z", key])]
    grown: dict[Any, int] = {"z": 1}
    grown[key] = 2
    split = Thing()
    vars(split)[key] = 1
    for value in [*made, grown, grown.copy(), vars(split)]:
        for outer in (value, [value], [[], value], {"x": {"y": value}}):
            with pytest.raises(NotStorable, match=r"\{key\}"):
                encode(outer)


def test_items_of_sets_and_parts_of_keys_have_a_path() -> None:
    """Neither has an index; the path says what it is."""
    for value, path in [({1, Thing}, "$.s{item}"), ({(1, Thing): 1}, "$.s{key}[1]")]:
        with pytest.raises(NotStorable) as caught:
            encode({"s": value})
        assert caught.value.path == path


def test_cycle_is_named_as_one() -> None:
    """The path ends where the value meets itself."""
    value: dict[str, Any] = {"a": [1, {}]}
    value["a"][1]["again"] = value
    with pytest.raises(NotStorable, match="contains itself") as caught:
        encode(value)
    assert caught.value.path == "$.a[1].again"
    holder = Holder(None)
    holder.lock = (holder,)
    with pytest.raises(NotStorable, match="contains itself") as caught:
        encode(holder)
    assert caught.value.path == "$.lock[0]"


@pytest.mark.parametrize(
    "wrap", [lambda x: [x], lambda x: (x,), lambda x: {"k": x}, lambda x: frozenset([x]), Holder], ids=range(5)
)
def test_depth_has_a_limit(wrap: Any) -> None:
    """At the limit a value returns; one level more is refused. Plain or not makes no difference."""
    value: Any = 1
    for _ in range(limits.payload_depth_max):
        value = wrap(value)
    assert decode(encode(value)) == value
    with pytest.raises(NotStorable, match="payload_depth_max"):
        encode(wrap(value))


def test_big_number_has_a_limit() -> None:
    """Also inside a fraction."""
    with pytest.raises(NotStorable, match="bigint_bits_max") as caught:
        encode({"n": [1 << limits.bigint_bits_max]})
    assert caught.value.path == "$.n[0]"


@pytest.mark.parametrize(
    "value", ["x" * 2000, [1] * 2000, ("x" * 2000,), [{"a": "x" * 100}] * 20, {"\ud800": ["x" * 2000]}], ids=range(5)
)
def test_size_has_a_limit(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says the size and the limit."""
    monkeypatch.setattr(limits, "payload_bytes_max", 1000)
    with pytest.raises(PayloadTooLarge, match=r"takes 2,[0-9]{3} bytes.*limit is 1,000 \(payload_bytes_max\)"):
        encode(value)


@pytest.mark.parametrize(
    "wrap", [lambda x: [x] * 100, lambda x: (x,) * 100, lambda x: dict.fromkeys("abcdefghij", x)], ids=range(3)
)
def test_shared_parts_that_multiply_are_refused_early(wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few objects that would take more bytes than there are atoms."""
    monkeypatch.setattr(limits, "payload_bytes_max", 100_000)
    value: Any = [1]
    for _ in range(50):
        value = wrap(value)
    with pytest.raises(PayloadTooLarge):
        encode(value)


def test_refusal_does_not_spoil_the_next_value() -> None:
    """A refused value leaves nothing behind."""
    with pytest.raises(NotStorable):
        encode([Thing()])
    assert decode(encode([(1,)])) == [(1,)]
