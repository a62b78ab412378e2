"""G1, G2, G3, Y1, Y2: most data classes are known without `register`, from annotations and from what modules hold."""

from __future__ import annotations

import dataclasses
import enum
import functools
import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from perdure.base.codec import decode, encode, register, register_from
from perdure.base.codec.registry import tag_of
from perdure.errors import NotStorable, UsageError

if TYPE_CHECKING:
    from nowhere import Missing

T = TypeVar("T")
SRC = str(Path(__file__).parents[3] / "src")


def module(source: str, **names: Any) -> types.ModuleType:
    """A user's module with this source, as an import would leave it."""
    made = types.ModuleType(f"user_{abs(hash(source)):x}")
    sys.modules[made.__name__] = made
    vars(made).update(names)
    exec(
        compile(
            "from __future__ import annotations\nfrom dataclasses import dataclass\n" + source, made.__name__, "exec"
        ),
        vars(made),
    )
    return made


def known(value: Any) -> bool:
    try:
        return bool(decode(encode(value)) == value)
    except NotStorable:
        return False


def test_class_that_nobody_named_is_refused() -> None:
    """Data classes are known by code that names them, not because a value turned up."""

    @dataclasses.dataclass
    class Stranger:
        a: int

    with pytest.raises(NotStorable, match="Put @register on it"):
        encode(Stranger(1))


def test_classes_of_the_module_are_known_even_if_defined_later() -> None:
    """A function is decorated before the rest of its module exists; the module is looked at when a class is met."""
    user = module("def agent(): ...\n")
    register_from(user.agent)
    later = module("@dataclass\nclass Later:\n    a: int\n").Later
    assert not known(later(1))
    user.Later = later
    assert known(later(1))


def test_a_module_may_be_given_itself() -> None:
    """Its data classes are known, its other classes are not."""
    user = module("@dataclass\nclass Data:\n    a: int\nclass Other: ...\n")
    register_from(user)
    assert known(user.Data(1))
    assert not known(user.Other())


def test_classes_in_annotations_are_known_with_those_in_their_fields() -> None:
    """Through containers, unions, Annotated, Literal, TypedDict, generics and other modules."""

    class Mood(enum.Enum):
        GOOD = 1

    class Inner(msgspec.Struct):
        mood: Mood

    class Movie(TypedDict):
        inner: list[Inner]

    class Where(NamedTuple):
        movie: Movie

    class Page(pydantic.BaseModel):
        where: Any = None

    @dataclasses.dataclass
    class Box(Generic[T]):
        item: T

    class Only(enum.Enum):
        ONE = 1

    def agent(page: Annotated[Page, "note"], box: Box[int] | None, only: Literal[1]) -> None: ...

    # The annotations are text here; these stand for real ones.
    agent.__annotations__ = {"page": Annotated[Page, "note"], "box": Box[int] | None, "only": Literal[Only.ONE]}
    Inner.__annotations__["mood"] = Mood
    Movie.__annotations__["inner"] = list[Inner]
    Where.__annotations__["movie"] = Movie
    Page.__pydantic_fields__["where"].annotation = dict[str, Where] | None
    register_from(agent)
    for value in (Page(), Where({"inner": []}), Inner(Mood.GOOD), Mood.GOOD, Box(1), Only.ONE):
        assert known(value), value


def test_one_annotation_that_cannot_be_resolved_does_not_hide_the_others() -> None:
    """Names that exist only for type checkers are common; the others are looked up one by one."""
    shapes = module("@dataclass\nclass Circle:\n    r: int\n@dataclass\nclass Square:\n    a: int\n")
    user = module("def agent(a: Missing, b: list['Circle'], c: shapes.Square | None) -> None: ...\n", shapes=shapes)
    agent, circle = user.agent, shapes.Circle

    def closing(a: Missing, b: Circle) -> Any:
        return Circle

    Circle = circle  # seen through the closure
    register_from(agent)
    assert known(shapes.Square(1))
    assert not known(shapes.Circle(1))
    register_from(closing)
    assert known(shapes.Circle(1))


def test_wrapped_functions_and_partials_are_looked_through() -> None:
    """Decorators that keep `__wrapped__` do not hide a function's annotations."""
    user = module("@dataclass\nclass Data:\n    a: int\ndef agent(d: Data) -> None: ...\n")

    @functools.wraps(user.agent)
    def wrapper(*args: Any) -> Any:
        return user.agent(*args)

    register_from(functools.partial(wrapper, 1))
    assert known(user.Data(1))


@pytest.mark.parametrize(
    "bad", [int, dict, object, Path, pydantic.BaseModel, enum.Enum, msgspec.Struct, 3, "os:system"]
)
def test_only_data_classes_can_be_registered(bad: Any) -> None:
    """G1: nothing else can ever be made from stored bytes."""
    with pytest.raises(UsageError, match="not a data class"):
        register(bad)


def test_register_is_a_decorator_and_takes_several() -> None:
    """As a decorator it returns the class."""

    @register
    class One(enum.Enum):
        A = 1

    two = enum.Enum("two", "A")
    three = enum.Enum("three", "A")
    register(two, three)
    assert known([One.A, two.A, three.A])


def test_instance_of_a_class_whose_name_was_taken_is_refused() -> None:
    """G2: it would come back as the other class. Classes made again by the same function are such."""

    def make() -> Any:
        @register
        @dataclasses.dataclass
        class Local:
            a: int

        return Local

    first, second = make(), make()
    assert known(second(1))
    with pytest.raises(NotStorable, match="Another class is stored as"):
        encode(first(1))


def test_reloaded_class_takes_over_its_tag() -> None:
    """What the module holds now is what stored values become."""
    source = "@dataclass\nclass Data:\n    a: int\n"
    user = module(source)
    register_from(user)
    data = encode(user.Data(1))
    old = user.Data
    exec(
        compile("from dataclasses import dataclass\n" + source, "reload", "exec"), vars(user)
    )  # stands for importlib.reload
    assert user.Data is not old
    assert known(user.Data(1))
    assert type(decode(data)) is user.Data


def test_pydantic_is_not_imported_for_users_who_do_not_have_it() -> None:
    """The codec only looks whether it is there."""
    code = "import sys; from perdure.base.codec import *; decode(encode([(1,)])); assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": SRC}, check=True)


SCRIPT = """
import sys
from dataclasses import dataclass
from perdure.base.codec import encode, decode, register_from

@dataclass
class Order:
    n: int

def agent(order: Order) -> None: ...
register_from(agent)
if __name__ == "__main__":
    print(encode(Order(7)).hex())
"""


def test_script_and_worker_agree_on_tags(tmp_path: Path) -> None:
    """G3: what a script stored as `__main__` a worker that imports the file reads; run by path or with -m."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    for name in ("shop.py", "pkg/inner.py"):
        (tmp_path / name).write_text(SCRIPT)
    env = {"PYTHONPATH": f"{SRC}:{tmp_path}"}
    for args, imported in [(["shop.py"], "shop"), (["-m", "shop"], "shop"), (["-m", "pkg.inner"], "pkg.inner")]:
        data = subprocess.run(
            [sys.executable, *args], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        ).stdout
        reader = (
            f"import {imported} as m; from perdure.base.codec import decode; "
            f"assert decode(bytes.fromhex({data!r})) == m.Order(7)"
        )
        subprocess.run([sys.executable, "-c", reader], cwd=tmp_path, env=env, check=True)


def test_tag_names_module_and_class() -> None:
    """Readable in the store, and enough to find the class by eye."""
    assert tag_of(Path) == "pathlib:Path"
    assert tag_of(types.SimpleNamespace) == "types:SimpleNamespace"
    assert tag_of(test_tag_names_module_and_class.__class__) == "builtins:function"
