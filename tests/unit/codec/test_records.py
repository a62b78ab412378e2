"""The users' data classes return as instances of the same class, without any of their code running."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections import namedtuple
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import pydantic
import pytest

from perdure.base.codec import decode, encode, register
from perdure.base.codec.registry import by_class, by_tag
from perdure.errors import NotStorable, StoreDamaged, UsageError

T = TypeVar("T")
calls: list[str] = []


@register
class Color(enum.Enum):
    RED = "r"
    GREEN = object()
    ROT = "r"  # noqa: PIE796  # an alias


@register
class Level(enum.IntEnum):
    LOW = 1


@register
class Word(enum.StrEnum):
    YES = "yes"


@register
class Right(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3
    EXEC = 4


@register
class Bits(enum.IntFlag, boundary=enum.KEEP):
    ONE = 1
    TWO = 2


@register
@dataclasses.dataclass
class Base:
    a: int
    kind: ClassVar[str] = "base"


@register
@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: dict[str, int] = dataclasses.field(default_factory=dict)


@register
@dataclasses.dataclass
class Late(Base):
    b: str = "b"
    total: int = dataclasses.field(init=False)
    seen: dataclasses.InitVar[int] = 0

    def __post_init__(self, seen: int) -> None:
        calls.append("Late")
        self.total = self.a + seen


@register
@dataclasses.dataclass
class Empty:
    later: int = dataclasses.field(init=False)


@register
@dataclasses.dataclass
class Box(Generic[T]):
    item: T

    @functools.cached_property
    def double(self) -> list[T]:
        return [self.item, self.item]


@register
class Plain(msgspec.Struct):
    a: int
    b: list[int] = []


@register
class Careful(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    a: Any
    b: Any = None

    def __post_init__(self) -> None:
        calls.append("Careful")

    def __init_subclass__(cls, **_: Any) -> None:
        calls.append("Careful subclass")


class Point(NamedTuple):
    x: int
    y: int = 0


Pair = namedtuple("Pair", "left right")  # noqa: PYI024  # the old form must work too
register(Point, Pair)


@register
class Model(pydantic.BaseModel):
    a: int
    b: Any = None
    _secret: int = 3

    @pydantic.field_validator("a")
    @classmethod
    def check(cls, a: int) -> int:
        calls.append("Model")
        return a

    def model_post_init(self, context: Any) -> None:
        calls.append("Model post")
        super().model_post_init(context)


@register
class Open(pydantic.BaseModel, extra="allow", frozen=True):
    a: int = 1


@register
class Roots(pydantic.RootModel[list[int]]):
    pass


@register
@pydantic.dataclasses.dataclass
class Checked:
    a: int


INSTANCES = [
    Color.RED,
    Color.GREEN,
    Color.ROT,
    Level.LOW,
    Word.YES,
    Right.READ,
    Right.BOTH,
    Right.READ | Right.EXEC,
    Right(0),
    Bits(9),
    Bits(2**40),
    Base(1),
    Frozen(1, {"x": 2}),
    Frozen((1, {2, (3,)})),
    Late(1, "x", 5),
    Box(Box((1,))),
    Plain(1, [2]),
    Careful(a=Careful(a={1})),
    Point(1),
    Point(1, (2,)),  # type: ignore[arg-type]
    Pair(1, [Pair(2, 3)]),
    Model(a=1, b=Model(a=2)),
    Model.model_construct(b=1),
    Open(a=1, extra=(1, 2)),
    Open(),
    Roots([1, 2]),
    Checked(1),
]


@pytest.mark.parametrize("value", INSTANCES, ids=[f"{i}-{type(value).__name__}" for i, value in enumerate(INSTANCES)])
def test_instance_returns_exactly(value: Any) -> None:
    """Same class, same state, and no `__init__`, `__post_init__`, validator or subclass hook is called."""
    data = encode(value)
    calls.clear()
    back = decode(data)
    assert calls == []
    assert type(back) is type(value)
    assert back == value
    assert encode(back) == data
    assert decode(encode({"k": [value]})) == {"k": [value]}


def test_enum_members_are_the_same_objects() -> None:
    """Members are singletons; an alias is its member."""
    assert decode(encode(Color.ROT)) is Color.RED
    assert decode(encode(Color.GREEN)) is Color.GREEN
    assert decode(encode(Right.READ | Right.WRITE)) is Right.BOTH


def test_keys_may_be_instances() -> None:
    """Frozen dataclasses, named tuples and enum members are keys; a key equal to a plain one keeps its type."""
    value = {Point(1): 1, Level.LOW: 2, Word.YES: 3}
    back = decode(encode(value))
    assert back == value
    assert list(map(type, back)) == [Point, Level, Word]


def test_struct_works_like_one_that_was_built_normally() -> None:
    """A rebuilt Struct with a `__post_init__` can be compared, hashed, copied and encoded by msgspec."""
    back = decode(encode(Careful(a=1)))
    assert hash(back) == hash(Careful(a=1))
    assert msgspec.structs.replace(back, a=2) == Careful(a=2)
    assert msgspec.json.encode(back) == b'{"type":"Careful","a":1,"b":null}'


def test_field_that_is_not_set_stays_unset() -> None:
    """A `field(init=False)` that nobody set is not invented."""
    assert not hasattr(decode(encode(Empty())), "later")


def test_what_a_cached_property_remembers_is_not_state() -> None:
    """It is computed again."""
    box = Box(1)
    assert box.double == [1, 1]
    back = decode(encode(box))
    assert "double" not in vars(back)
    assert back == box


def test_generic_alias_on_an_instance_is_not_state() -> None:
    """`Box[int](1)` remembers its alias; that is typing's note."""
    assert decode(encode(Box[int](1))) == Box(1)


def test_model_keeps_fields_set_extra_and_private() -> None:
    """The set of given fields, extra values and private attributes all return."""
    model = Model(a=1)
    model._secret = 9
    back = decode(encode(model))
    assert (back.model_fields_set, back._secret) == ({"a"}, 9)
    assert decode(encode(Open(z=(1,)))).__pydantic_extra__ == {"z": (1,)}


def test_attribute_that_is_no_field_is_refused() -> None:
    """State outside the fields would be lost: the message names it."""
    value = Base(1)
    value.extra = 2  # type: ignore[attr-defined]
    with pytest.raises(NotStorable, match="not fields: extra"):
        encode(value)


def test_hidden_slot_is_refused() -> None:
    """A slot of a base class that is no field would be lost too."""

    class Hidden:
        __slots__ = ("_note",)

    @register
    @dataclasses.dataclass(slots=True)
    class Child(Hidden):
        a: int

    assert decode(encode(Child(1))) == Child(1)
    value = Child(1)
    value._note = 1
    with pytest.raises(NotStorable, match="_note"):
        encode(value)


def test_dataclass_with_a_builtin_base_is_not_a_data_class() -> None:
    """What it inherits from dict or Exception is not in its fields."""

    @dataclasses.dataclass
    class Odd(Exception):
        a: int

    with pytest.raises(UsageError, match="not a data class"):
        register(Odd)


def changed(old: Any, new: Any, value: Any) -> Any:
    """Store with the old class, read with the new one under the same tag."""
    new.__module__, new.__qualname__ = old.__module__, old.__qualname__ = __name__, "Changing"
    register(old)
    data = encode(value)
    register(new)
    try:
        return decode(data)
    finally:
        by_class.pop(new)
        by_tag.pop(f"{__name__}:Changing")


def kinds(fields: list[tuple[str, Any, Any]]) -> list[Any]:
    """The same fields as a class of each kind; `...` means no default."""
    bare = [(n, t) if d is ... else (n, t, d) for n, t, d in fields]
    return [
        dataclasses.make_dataclass(
            "C", [(n, t) if d is ... else (n, t, dataclasses.field(default=d)) for n, t, d in fields]
        ),
        msgspec.defstruct("C", bare),
        pydantic.create_model("C", **{n: (t, d) for n, t, d in fields}),
        namedtuple("C", [n for n, _, _ in fields], defaults=[d for _, _, d in fields if d is not ...]),  # noqa: PYI024
    ]


@pytest.mark.parametrize("kind", range(4))
def test_new_field_takes_its_default(kind: int) -> None:
    """A field that the class gained takes its default."""
    old, new = kinds([("a", int, ...)])[kind], kinds([("a", int, ...), ("b", int, 7)])[kind]
    assert changed(old, new, old(a=1)).b == 7


@pytest.mark.parametrize("kind", range(4))
def test_new_field_without_default_is_a_typed_error(kind: int) -> None:
    """Without a default the read is refused and the field named."""
    old, new = kinds([("a", int, ...)])[kind], kinds([("a", int, ...), ("b", int, ...)])[kind]
    with pytest.raises(StoreDamaged, match="new field 'b'"):
        changed(old, new, old(a=1))


@pytest.mark.parametrize("kind", range(4))
def test_field_that_is_gone_is_a_typed_error(kind: int) -> None:
    """A stored field that the class no longer has is never dropped."""
    old, new = kinds([("a", int, ...), ("b", int, ...)])[kind], kinds([("a", int, ...)])[kind]
    with pytest.raises(StoreDamaged, match="no field 'b'"):
        changed(old, new, old(a=1, b=2))


def test_struct_default_factory_is_called_for_a_new_field() -> None:
    """Each read gets its own list."""
    old = msgspec.defstruct("C", [("a", int)])
    new = msgspec.defstruct("C", [("a", int), ("b", list, msgspec.field(default_factory=list))])
    assert changed(old, new, old(a=1)).b == []


def test_member_that_is_gone_is_a_typed_error() -> None:
    """For enums the member is named."""
    with pytest.raises(StoreDamaged, match="no member 'B'"):
        changed(old := enum.Enum("C", "A B"), enum.Enum("C", "A"), old.B)


def test_class_that_changed_its_kind_is_a_typed_error() -> None:
    """A dataclass that became a Struct is not guessed at."""
    old, new, *_ = kinds([("a", int, ...)])
    with pytest.raises(StoreDamaged, match="was a dataclass and is now a msgspec Struct"):
        changed(old, new, old(a=1))


def test_extra_values_a_model_no_longer_takes_are_a_typed_error() -> None:
    """Extra values are never dropped."""
    old = pydantic.create_model("C", __config__={"extra": "allow"}, a=(int, ...))
    new = pydantic.create_model("C", a=(int, ...))
    with pytest.raises(StoreDamaged, match="'z'"):
        changed(old, new, old(a=1, z=2))
