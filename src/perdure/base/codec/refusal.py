"""Why a value cannot be stored, and what to do instead. Runs only after a refusal."""

from __future__ import annotations

import collections
import io
import types
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from perdure.base.codec import registry
from perdure.base.codec.wire import type_of

_BUILTINS: Final = (str, int, float, complex, bytes, bytearray, dict, list, tuple, set, frozenset, collections.deque)
_PROCESS_BOUND: Final = (
    "_thread",
    "threading",
    "_asyncio",
    "asyncio",
    "multiprocessing",
    "concurrent",
    "_queue",
    "queue",
)
_FUNCTIONS: Final = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
)


def reason(value: Any) -> str:
    """Follows "cannot store $.path: it "."""
    cls = type_of(value)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    remedy = _remedy(value, cls)
    article = "an" if name[:1] in "aeiouAEIOU" else "a"
    return f"is {article} {name}. {remedy}"


def _remedy(value: Any, cls: type) -> str:
    if registry.shape_of(cls) is not None:
        return _unregistered(cls)
    root = cls.__module__.partition(".")[0]
    if isinstance(value, type):
        return "Store its name instead of the class"
    if isinstance(value, _FUNCTIONS):
        return "Store what it returns, or its name, instead of the function"
    if isinstance(value, types.ModuleType):
        return "Store what you need of it instead of the module"
    if isinstance(value, io.IOBase):
        return "Store its path, and open it in the step"
    if isinstance(value, Awaitable):
        return "Await it first and store the result"
    if root in _PROCESS_BOUND or root in ("socket", "_socket", "ssl", "sqlite3"):
        return "It belongs to one process: create it where it is used"
    if isinstance(value, BaseException):
        return "Store its message instead of the exception"
    return _plain_copy(value)


def _plain_copy(value: Any) -> str:
    for base in _BUILTINS:
        if isinstance(value, base):
            return f"Storing it would make it a plain {base.__name__}. If that is right, pass {base.__name__}(value)"
    if isinstance(value, memoryview):
        return "Pass bytes(value)"
    if hasattr(value, "tolist"):
        return "Pass value.tolist()"
    if isinstance(value, Mapping):
        return "Pass dict(value)"
    if hasattr(value, "__iter__"):
        return "Pass list(value)"
    return "Make its class a dataclass, msgspec.Struct or pydantic model, or pass plain data"


def _unregistered(cls: type) -> str:
    tag = registry.tag_of(cls)
    if tag in registry.by_tag:
        return f"Another class is stored as {tag!r}. Give one of the two another name"
    return f"Its class is not known as {tag!r}. Put @register on it, or name it in the annotations of the agent or step"
