"""S1, S2: whatever the bytes, the answer is a value or StoreDamaged, and nothing is imported or evaluated."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.base import limits
from perdure.base.codec import decode, encode, show, wire
from perdure.errors import StoreDamaged

SRC = str(Path(__file__).parents[3] / "src")


def ext(code: int, content: Any) -> bytes:
    data = content if isinstance(content, bytes) else wire.pack(content)
    return wire.pack(msgspec.msgpack.Ext(code, data))


HOSTILE = {
    "empty": b"",
    "never used byte": b"\xc1",
    "cut": encode([1, "abc"])[:-1],
    "trailing": encode(1) + b"\x00",
    "huge list": b"\xdd\xff\xff\xff\xff",
    "huge map": b"\xdf\x7f\xff\xff\xff\x01",
    "bad utf-8": b"\xa1\xff",
    "list as key": ext(wire.PAIRS, [[], 1]),
    "odd pairs": ext(wire.PAIRS, [1]),
    "nested too deeply": b"\x91" * 100_000 + b"\xc0",
    "tuples nested too deeply": b"",
    "unknown code": ext(99, b""),
    "negative code": ext(-5, b""),
    "timestamp out of range": b"\xc7\x0c\xff" + b"\xff" * 12,
    "tuple of no list": ext(wire.TUPLE, {"a": 1}),
    "list in a set": ext(wire.SET, [[1]]),
    "month 13": ext(wire.DATE, b"\x07\xd0\x0d\x01"),
    "short date": ext(wire.DATE, b"\x07"),
    "short datetime": ext(wire.DATETIME, b"\x07"),
    "zone with a path": ext(
        wire.DATETIME, encode_zone := b"\x07\xea\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00Z../../etc/passwd"
    ),
    "zone with dots": ext(wire.DATETIME, encode_zone[:12] + b"Zos.path"),
    "zone kind": ext(wire.DATETIME, encode_zone[:12] + b"?"),
    "offset of a year": ext(wire.DATETIME, encode_zone[:12] + b"O" + b"\x7f" * 8),
    "decimal text": ext(wire.DECIMAL, b"one"),
    "decimal range": ext(wire.DECIMAL, b"1E+99999999999999999999"),
    "short uuid": ext(wire.UUID, b"\x01"),
    "path kind": ext(wire.PATH, b"?a"),
    "windows path": ext(wire.PATH, b"wa"),
    "half": ext(wire.FRACTION, b"\x00\x00\x00\x01\x01\x00"),
    "address": ext(wire.ADDRESS, b"4300.1.1.1"),
    "deque shorter than its items": ext(wire.DEQUE, [-1, 2]),
    "empty deque": ext(wire.DEQUE, []),
    "big number over the limit": ext(wire.BIG_INT, b"\x01" * (limits.bigint_bits_max // 8 + 2)),
    "record without tag": ext(wire.DATACLASS, []),
    "record with a list for a tag": ext(wire.DATACLASS, [[1], None]),
    "unknown tag": ext(wire.DATACLASS, ["os:system", None, {"a": 1}]),
    "unknown enum": ext(wire.ENUM, ["signal:Signals", "SIGKILL"]),
}
for _ in range(3000):
    HOSTILE["tuples nested too deeply"] = ext(wire.TUPLE, b"\x91" + (HOSTILE["tuples nested too deeply"] or b"\xc0"))


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_bytes_that_encode_never_makes_are_a_typed_error(data: bytes) -> None:
    """Truncated, nested, out of range, or naming what is not registered."""
    with pytest.raises(StoreDamaged):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [
        *HOSTILE.values(),
        ext(wire.TIMEDELTA, b"\x7f\xff\xff\xff" + bytes(8)),
        ext(wire.DATACLASS, ["m:C", None, 1]),
        ext(wire.COMPLEX, b"1"),
    ],
)
def test_showing_bytes_never_raises(data: bytes) -> None:
    """A person who looks at a damaged run sees the rest of it."""
    json.dumps(show(data))


def test_unknown_tag_is_named_with_a_remedy() -> None:
    """The class may only be missing: the message says what to do."""
    with pytest.raises(StoreDamaged, match=r"'app.models:Order'.*Put the class back, or @register it"):
        decode(ext(wire.DATACLASS, ["app.models:Order", None, {}]))


CHILD = textwrap.dedent(
    """
    import sys, dataclasses, datetime, decimal, enum, fractions, pathlib, random, uuid, zoneinfo, collections, ipaddress
    from typing import NamedTuple
    import msgspec, pydantic
    from perdure.base.codec import encode, decode, register
    from perdure.errors import StoreDamaged

    watching, ran = False, []

    @register
    @dataclasses.dataclass
    class D:
        a: object
        b: int = 2
    @register
    class S(msgspec.Struct):
        a: object
        def __post_init__(self): ran.append(watching)
    @register
    class M(pydantic.BaseModel, extra="allow"):
        a: object
        _p: int = 1
    @register
    class E(enum.Flag):
        A = 1
        B = 2
    @register
    class N(NamedTuple):
        a: int

    rome = zoneinfo.ZoneInfo("Europe/Rome")
    values = [
        {"a": [1, 2.5, None, True, "text", b"b"], "b": {"c": {}}}, (1, (2, "x")), {1, 2, (3,)}, frozenset("ab"),
        2**80, "\\ud800", {(1, 2): 3}, bytearray(b"x"), datetime.datetime(2026, 1, 1, tzinfo=rome),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc), datetime.timedelta(1),
        datetime.time(1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "X")),
        decimal.Decimal("1.5"), uuid.UUID(int=1), 1j, pathlib.Path("a"), collections.OrderedDict(a=1),
        collections.deque([1], 3), fractions.Fraction(1, 3), ipaddress.ip_interface("10.0.0.1/8"),
        D((1,)), S((1,)), M(a=(1,), z=2), E.A | E.B, E.A, N(1),
    ]
    seeds = [encode(value) for value in values] + [encode(values)]
    for data in seeds:
        decode(data)
    try:  # loads the list of zones that are installed, once
        decode(encode(values[8]).replace(b"Rome", b"Roma"))
    except StoreDamaged:
        pass

    def mutate(rng, data):
        out = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(out) + 1)
            match rng.randrange(5):
                case 0 if out: out[at % len(out)] = rng.randrange(256)
                case 1: out[at:at] = rng.randbytes(rng.randint(1, 4))
                case 2: del out[at : at + rng.randint(1, 5)]
                case 3: out[at:at] = rng.choice(seeds)
                case 4 if out: out[at % len(out)] ^= 1 << rng.randrange(8)
        return bytes(out)

    seen = []
    watched = ("import", "exec", "compile", "open", "os.", "subprocess", "socket", "pickle", "marshal", "code.")
    def hook(event, args):
        if watching and event.startswith(watched):
            seen.append((event, str(args)[:100]))
    sys.addaudithook(hook)
    rng = random.Random(int(sys.argv[1]))
    counts = collections.Counter()
    for _ in range(int(sys.argv[2])):
        data = mutate(rng, rng.choice(seeds))
        watching = True
        try:
            decode(data)
            outcome = "value"
        except StoreDamaged:
            outcome = "damaged"
        except BaseException as error:
            outcome = "untyped"
            print(type(error), error, data)
        watching = False
        counts[outcome] += 1
    print(counts["untyped"], counts["value"] + counts["damaged"], sorted(set(seen)), any(ran))
    """
)


def test_mutated_bytes_give_a_value_or_a_typed_error_and_import_nothing() -> None:
    """2,000 mutations of values of every kind; an audit hook watches for imports, evaluation and file access."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(random.Random(7).randrange(1000)), "2000"],
        env={"PYTHONPATH": SRC},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0 2000 [] False\n", "")
