"""Values to bytes.

E1. What cannot be stored exactly is refused, with the path inside the value; nothing is silently changed.
E2. Equal values of equal types give equal bytes in every process: sets are sorted by their elements' bytes,
    dicts keep their order.
E3. Plain data is checked with set tests that run in C and goes to msgspec as it is; only the rest is transformed.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Mapping
from gc import get_referents
from itertools import chain, islice
from typing import Any, Final

import msgspec

from perdure.base import limits
from perdure.base.codec import discovery, refusal, scalars, wire
from perdure.base.codec.registry import Entry
from perdure.base.codec.wire import ATOMS, Ext, type_of
from perdure.errors import NotStorable, PayloadTooLarge

# Text and numbers that msgpack lacks are rare, so msgspec finds them. Then all are looked at, except these.
_SAFE_ATOMS: Final = ATOMS - {int, str}
_PLAIN: Final = ATOMS | {list, dict}
_CHUNK: Final = 128


def encode(value: object) -> bytes:
    """The bytes of a value. Raises NotStorable with the path of the bad part, PayloadTooLarge over the limit."""
    try:
        data = wire.pack(value if type(value) in ATOMS or is_plain(value) else _Transform(ATOMS).run(value))
    except (UnicodeEncodeError, OverflowError):
        data = wire.pack(_Transform(_SAFE_ATOMS).run(value))
    except MemoryError:
        raise PayloadTooLarge(
            "The value does not fit into memory. Write it to a file or a table in a step, and return where it is"
        ) from None
    if len(data) > limits.payload_bytes_max:
        raise _too_large(len(data))
    return data


def encode_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The bytes of a call: those of `encode([list(args), kwargs])`, at a third of the price for a few plain arguments."""
    if not kwargs and ATOMS.issuperset(map(type, args)):
        try:
            data = wire.pack((args, kwargs))
        except (UnicodeEncodeError, OverflowError, MemoryError):
            return encode([list(args), kwargs])
        if len(data) <= limits.payload_bytes_max:
            return data
    return encode([list(args), kwargs])


def _too_large(size: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"The value takes {size:,} bytes or more; the limit is {limits.payload_bytes_max:,} (payload_bytes_max). "
        "Write it to a file or a table in a step, and return where it is"
    )


def is_plain(value: Any) -> bool:
    """Whether msgspec alone stores the value exactly, but for odd text and big numbers, which it refuses.

    Goes level by level, so that the work is in C.
    Things that don't work: a loop over the items (three times as slow); `chain` over items, keys and values (twice).
    Solution: `get_referents`, which gives what the garbage collector sees in a list or dict: items, values, and the
    keys of any dict with a key other than exact str. Exact str is all it leaves out, and the tests hold it to that.
    """
    kind = type_of(value)
    if kind in ATOMS:
        return True
    if kind is not list and kind is not dict:
        return False
    level = get_referents(value)
    if ATOMS.issuperset(map(type, level)):
        return True
    count = 0
    for _ in range(limits.payload_depth_max - 1):
        if not _PLAIN.issuperset(map(type, level)):
            return False
        level = get_referents(*level) if len(level) <= _CHUNK else _below(level, count)
        if ATOMS.issuperset(map(type, level)):
            return True
        count += len(level)
    return False  # too deep: the transform says where


def _below(level: list[Any], count: int) -> list[Any]:
    """The next level of a wide one, in parts: each item takes a byte, and shared parts can multiply without end."""
    below: list[Any] = []
    for start in range(0, len(level), _CHUNK):
        below += get_referents(*level[start : start + _CHUNK])
        if count + len(below) > limits.payload_bytes_max:
            raise _too_large(count + len(below))
    return below


class _Transform:
    """One value's way into what msgspec can write. The trail collects the path of a refusal on the way out."""

    __slots__ = ("above", "atoms", "count", "loop_at", "trail")

    def __init__(self, atoms: frozenset[type]) -> None:
        self.atoms = atoms
        self.above: list[Any] = []
        self.trail: list[str] = []
        self.loop_at: int | None = None
        self.count = 0

    def run(self, value: Any) -> Any:
        try:
            return self.one(value)
        except NotStorable as error:
            steps = self.trail[::-1]
            path = "$" + "".join(steps if self.loop_at is None else steps[: self.loop_at])
            raise NotStorable(f"cannot store {path}: it {error}", path=path) from None

    def one(self, x: Any) -> Any:
        kind = type_of(x)
        if kind in self.atoms:
            return x
        leaf = _LEAVES.get(kind)
        if leaf is not None:
            return leaf(x)
        inner = _CONTAINERS.get(kind)
        if inner is not None:
            self._enter(x)
            made = inner(self, x)
            self.above.pop()
            return made
        entry = discovery.find_class(kind)
        if entry is None:
            raise NotStorable(refusal.reason(x))
        self._enter(x)
        made = self._record(entry, x)
        self.above.pop()
        return made

    def _enter(self, x: Any) -> None:
        self.above.append(x)
        if len(self.above) <= limits.payload_depth_max:
            return
        seen: set[int] = set()
        for depth, above in enumerate(self.above):
            if id(above) in seen:
                self.loop_at = depth
                raise NotStorable("contains itself. Store a value without cycles")
            seen.add(id(above))
        raise NotStorable(
            f"is nested deeper than {limits.payload_depth_max} levels (payload_depth_max). Store it flatter"
        )

    def _count(self, xs: Collection[Any]) -> None:
        self.count += len(xs)
        if self.count > limits.payload_bytes_max:
            raise _too_large(self.count)

    def items(self, xs: Any) -> Any:
        """The items of a list, tuple or deque."""
        self._count(xs)
        if self.atoms.issuperset(map(type, xs)):
            return xs
        atoms = self.atoms
        made: list[Any] = []
        try:
            for x in xs:
                made.append(x if type(x) in atoms else self.one(x))  # noqa: PERF401  # its length is the path
        except NotStorable:
            self.trail.append(f"[{len(made)}]")
            raise
        return made

    def mapping(self, xs: Mapping[Any, Any]) -> Any:
        self._count(xs)
        if not self.atoms.issuperset(map(type, xs)):
            keys = list(map(self.key, xs))
            # msgpack's own maps hold plain keys only: an extension cannot be a key.
            if any(type(key) not in ATOMS for key in keys):
                return self.pairs(xs, keys)
        if self.atoms.issuperset(map(type, xs.values())):
            return xs
        return dict(zip(xs, self._values(xs), strict=True))

    def _values(self, xs: Mapping[Any, Any]) -> list[Any]:
        atoms = self.atoms
        made: list[Any] = []
        try:
            for x in xs.values():
                made.append(x if type(x) in atoms else self.one(x))  # noqa: PERF401  # its length is the path
        except NotStorable:
            self.trail.append(_step(next(islice(xs, len(made), None))))
            raise
        return made

    def key(self, key: Any) -> Any:
        try:
            return self.one(key)
        except NotStorable:
            self.trail.append("{key}")
            raise

    def pairs(self, xs: Mapping[Any, Any], keys: list[Any]) -> Ext:
        return self.ext(wire.PAIRS, list(chain.from_iterable(zip(keys, self._values(xs), strict=True))))

    def elements(self, xs: Collection[Any]) -> list[msgspec.Raw]:
        """The elements of a set, in the order of their bytes (E2)."""
        self._count(xs)
        try:
            return [msgspec.Raw(data) for data in sorted(wire.pack(self.one(x)) for x in xs)]
        except NotStorable:
            self.trail.append("{item}")
            raise

    def ext(self, code: int, content: Any) -> Ext:
        data = wire.pack(content)
        if len(data) > limits.payload_bytes_max:
            raise _too_large(len(data))
        return Ext(code, data)

    def _record(self, entry: Entry, x: Any) -> Ext:
        note, maps = entry.shape.take(x)
        plain_note = self.items(note) if type(note) is list else self.one(note)
        return self.ext(entry.shape.code, [entry.tag, plain_note, *map(self.mapping, maps)])


def _step(key: Any) -> str:
    if type(key) is str:
        return f".{key}" if key.isidentifier() else f"[{key[:80]!r}]"
    # A long int has no repr: Python refuses.
    plain = type(key) in ATOMS and not (type(key) is int and key.bit_length() > 256)
    return f"[{key!r:.80}]" if plain else f"[{type(key).__qualname__}]"


def _int(x: int) -> Any:
    if wire.INT_MIN <= x <= wire.INT_MAX:
        return x
    if x.bit_length() > limits.bigint_bits_max:
        raise NotStorable(scalars.too_many_bits(x.bit_length()))
    return Ext(wire.BIG_INT, wire.int_to_bytes(x))


def _str(x: str) -> Any:
    try:
        x.encode()
    except UnicodeEncodeError:
        return Ext(wire.ODD_TEXT, wire.text_to_bytes(x))
    return x


_LEAVES: Final[dict[type, Callable[[Any], Any]]] = {int: _int, str: _str, **scalars.PACK}

_CONTAINERS: Final[dict[type, Callable[[_Transform, Any], Any]]] = {
    list: _Transform.items,
    tuple: lambda walk, x: walk.ext(wire.TUPLE, walk.items(x)),
    dict: _Transform.mapping,
    set: lambda walk, x: walk.ext(wire.SET, walk.elements(x)),
    frozenset: lambda walk, x: walk.ext(wire.FROZENSET, walk.elements(x)),
    collections.OrderedDict: lambda walk, x: Ext(wire.ORDERED_DICT, walk.pairs(x, list(map(walk.key, x))).data),
    collections.deque: lambda walk, x: walk.ext(wire.DEQUE, [x.maxlen, *walk.items(x)]),
}
