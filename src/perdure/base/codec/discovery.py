"""How the codec learns the users' data classes from their code, so that most need no `register`.

Y1. Nothing is scanned at decoration time: module globals are incomplete then.
    Scanning waits for the first class or tag that is not known.
Y2. A scan looks at annotations and at what modules hold; it imports nothing and calls nothing of the user's.
"""

from __future__ import annotations

import ast
import enum
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from perdure.base.codec import registry
from perdure.base.codec.registry import Entry
from perdure.errors import UsageError

T = TypeVar("T")

# In the order of registration. Guarded, like what follows, by registry.lock.
_roots: dict[Any, None] = {}
# Classes and functions whose annotations were all understood.
_settled: set[Any] = set()
# Classes seen in earlier scans: the starting points of later ones until they settle.
_open: dict[Any, None] = {}


@overload
def register(cls: type[T], /) -> type[T]: ...
@overload
def register(*classes: type) -> type | None: ...
def register(*classes: Any) -> Any:
    """Let values of these classes be stored: dataclasses, msgspec Structs, pydantic models, enums, named tuples.

    Also a decorator. The classes named in their fields follow by themselves.
    """
    for cls in classes:
        shape = registry.shape_of(cls) if isinstance(cls, type) else None
        if shape is None:
            raise UsageError(
                f"register: {getattr(cls, '__qualname__', cls)!r} is not a data class. "
                "Make it a dataclass, msgspec.Struct, pydantic model, enum or NamedTuple"
            )
        registry.add(cls, shape, by_hand=True)
        with registry.lock:
            _open[cls] = None
    return classes[0] if len(classes) == 1 else None


def register_from(source: Callable[..., Any] | types.ModuleType) -> None:
    """Let values of the data classes that a function or module uses be stored.

    These are the classes in its annotations, in its module's globals, and in the fields of both.
    """
    with registry.lock:
        _roots[source if isinstance(source, types.ModuleType) else _plain_function(source)] = None


def find_class(cls: type) -> Entry | None:
    entry = registry.by_class.get(cls)
    if entry is None and registry.shape_of(cls) is not None:
        scan()
        entry = registry.by_class.get(cls)
    return entry


def find_tag(tag: str) -> Entry | None:
    entry = registry.by_tag.get(tag)
    if entry is None:
        scan()
        entry = registry.by_tag.get(tag)
    return entry


def scan() -> None:
    """Look again at all that was remembered. What is settled is not looked at twice; modules may have grown."""
    with registry.lock:
        todo: list[Any] = list(_open)
        for root in _roots:
            module = (
                root if isinstance(root, types.ModuleType) else sys.modules.get(getattr(root, "__module__", None) or "")
            )
            if module is not None:
                todo.extend(
                    value for value in list(vars(module).values()) if isinstance(value, type) and value not in _settled
                )
            if root is not module and root not in _settled:
                todo.extend(_annotations(root))
        _visit(todo)


def _visit(todo: list[Any]) -> None:
    """Register the data classes among these types, and those in their fields, and so on."""
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if typing.get_origin(item) is not None:
            # The members of a Literal may be those of an enum.
            todo.extend(type(arg) if isinstance(arg, enum.Enum) else arg for arg in typing.get_args(item))
            todo.append(typing.get_origin(item))
        elif isinstance(item, typing.TypeVar):
            todo.extend((item.__bound__, *item.__constraints__))
        elif isinstance(item, type):
            _visit_class(item, todo)
        else:
            # NewType and the `type` statement of Python 3.12.
            todo.extend(
                getattr(item, name)
                for name in ("__supertype__", "__value__")
                if type(item).__module__ == "typing" and hasattr(item, name)
            )


def _visit_class(cls: Any, todo: list[Any]) -> None:
    if cls in _settled:
        return
    shape = registry.shape_of(cls)
    if shape is not None:
        registry.add(cls, shape, by_hand=False)
    elif not typing.is_typeddict(cls):
        return
    _open[cls] = None
    todo.extend(_annotations(cls))


def _annotations(holder: Any) -> list[Any]:
    """The types in a function's or class's annotations; as many as can be resolved now."""
    around = _surroundings(holder)
    models: dict[str, Any] = getattr(holder, "__pydantic_fields__", None) or {} if isinstance(holder, type) else {}
    found = [field.annotation for field in models.values()]
    try:
        found.extend(typing.get_type_hints(holder, localns=around).values())
    except Exception:  # noqa: BLE001  # names under TYPE_CHECKING, or not defined yet: take what can be found
        for owner in _owners(holder):
            names = {**vars(sys.modules.get(getattr(owner, "__module__", None) or "", types)), **around}
            for note in list(getattr(owner, "__annotations__", {}).values()):
                found.extend(_named_in(note, names) if isinstance(note, str) else [note])
    else:
        _settled.add(holder)
        _open.pop(holder, None)
    return found


def _owners(holder: Any) -> list[Any]:
    return (
        [base for base in holder.__mro__ if "__annotations__" in vars(base)] if isinstance(holder, type) else [holder]
    )


def _surroundings(holder: Any) -> dict[str, Any]:
    """What a function closes over, by name: there stand the classes that were defined beside it in another function."""
    around: dict[str, Any] = {}
    code = getattr(holder, "__code__", None)
    for name, cell in zip(code.co_freevars if code else (), getattr(holder, "__closure__", None) or (), strict=False):
        try:
            around[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return around


def _named_in(note: str, names: dict[str, Any]) -> Iterator[Any]:
    """The types that the text of an annotation names, looked up, not evaluated."""
    try:
        tree = ast.parse(note, mode="eval")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            yield names[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = names.get(node.value.id)
            yield vars(module).get(node.attr) if isinstance(module, types.ModuleType) else None
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != note:
            yield from _named_in(node.value, names)


def _plain_function(source: Any) -> Any:
    while hasattr(source, "func"):  # functools.partial
        source = source.func
    return getattr(inspect.unwrap(source), "__func__", inspect.unwrap(source))
