"""From a name in the code to its object, without running anything: no property, no `__getattr__`, no import."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import getattr_static
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, cast

from perdure.kernel.guard import bans
from perdure.kernel.guard.bans import Kind
from perdure.kernel.guard.code import Import
from perdure.kernel.guard.standins import StandIn

MISSING: Any = object()

_SHARED: tuple[type[Any], ...] = (
    *(
        asyncio.Lock,
        asyncio.Event,
        asyncio.Condition,
        asyncio.Semaphore,
        asyncio.Barrier,
        asyncio.Queue,
        asyncio.Future,
    ),
    *(GeneratorType, AsyncGeneratorType, CoroutineType, itertools.count, itertools.cycle),
)
"""What runs would share if it were made outside them: asyncio's own, and iterators that are used up."""


@dataclass(frozen=True, slots=True)
class Value:
    """An object, as far as it is known, and the name under which it was reached."""

    obj: Any
    module: str = ""
    name: str = ""


UNKNOWN = Value(MISSING)


def imported(item: Import, package: str) -> Value:
    module = item.module
    if item.level:
        base = package.rsplit(".", item.level - 1)[0]
        module = f"{base}.{module}" if module else base
    value = Value(sys.modules.get(module, MISSING), module)
    return value if item.attr is None else attribute(value, item.attr)


def attribute(value: Value, attr: str) -> Value:
    """What `value.attr` is."""
    obj = value.obj
    if isinstance(obj, ModuleType) or (obj is MISSING and value.module and not value.name):
        module = obj.__name__ if isinstance(obj, ModuleType) else value.module
        found = vars(obj).get(attr, MISSING) if isinstance(obj, ModuleType) else MISSING
        if found is MISSING:
            found = sys.modules.get(f"{module}.{attr}", MISSING)
        if isinstance(found, ModuleType):
            return Value(found, found.__name__)
        return Value(found, module, attr)
    if obj is MISSING:
        return Value(MISSING, value.module, f"{value.name}.{attr}" if value.name else "")
    if isinstance(obj, type):
        return _member(obj, attr)
    own = _instance_dict(obj)
    if attr in own:
        return Value(own[attr])
    return _member(type(obj), attr)


def _member(cls: Any, attr: str) -> Value:
    for owner in cast("tuple[type, ...]", type.__dict__["__mro__"].__get__(cls)):
        members = cast("dict[str, Any]", vars(owner))
        if attr in members:
            found = members[attr]
            if type(found) in {staticmethod, classmethod}:
                found = found.__func__
            return Value(found, owner.__module__, f"{owner.__qualname__}.{attr}")
    return Value(MISSING, cls.__module__, f"{cls.__qualname__}.{attr}")


def _instance_dict(obj: Any) -> dict[str, Any]:
    try:
        own: Any = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return cast("dict[str, Any]", own) if type(own) is dict else {}


def callables(obj: Any) -> Iterator[Any]:
    """What is called when `obj` is called: behind stand-ins, partials, bound methods and decorators, up to a step."""
    for _ in range(64):
        if is_recorded(obj):
            return
        yield obj
        if isinstance(obj, StandIn):
            obj = obj.__wrapped__
        elif isinstance(obj, functools.partial):
            obj = obj.func
        elif isinstance(obj, MethodType) and isinstance(obj.__func__, FunctionType):
            obj = obj.__func__
        elif not isinstance(obj, type) and "__wrapped__" in _instance_dict(obj):
            obj = _instance_dict(obj)["__wrapped__"]
        else:
            return


def own_name(obj: Any) -> tuple[str, str] | None:
    """Module and name a function or class was defined with, whatever it is called here."""
    if isinstance(obj, type):
        return obj.__module__, obj.__qualname__
    if isinstance(obj, StandIn):
        return obj.__module__, obj.__name__
    if isinstance(obj, FunctionType):
        return obj.__module__ or "", obj.__qualname__
    if isinstance(obj, BuiltinFunctionType):
        home: Any = obj.__self__
        if home is None or isinstance(home, ModuleType):
            return obj.__module__ or "", obj.__qualname__
        cls: type = home if isinstance(home, type) else type(home)
        return cls.__module__, f"{cls.__qualname__}.{obj.__name__}"
    if isinstance(obj, MethodType):
        return type(obj.__self__).__module__, f"{type(obj.__self__).__qualname__}.{obj.__name__}"
    if type(obj).__name__ == "cython_function_or_method":
        return str(obj.__module__), str(obj.__qualname__)
    return None


def verdict(value: Value) -> tuple[str, Kind] | None:
    """The public name and the kind of ban of what this is, if it is banned."""
    if value.module and value.name and (found := bans.banned(value.module, value.name)):
        return found
    for each in callables(value.obj):
        name = own_name(each)
        if name is not None and (found := bans.banned(*name)):
            return found
    return None


def touched(value: Value) -> tuple[str, Kind] | None:
    """The name of a value that may not even be looked at."""
    full = f"{value.module}.{value.name}"
    if value.obj is not MISSING:
        for name, obj in (("os.environ", os.environ), ("os.environb", os.environb), ("sys.argv", sys.argv)):
            if value.obj is obj:
                return name, bans.BANNED[name]
    if random.Random in type(value.obj).__mro__:
        return "a generator made outside the agent,", bans.CHANCE
    if (shared := _shared(value.obj)) is not None:
        return f"{shared} made outside the agent,", bans.SHARED
    return (full, bans.BANNED[full]) if full in bans.LOADED else None


def _shared(obj: Any) -> str | None:
    cls = cast("type[object]", type(obj))
    if not any(kind in cls.__mro__ for kind in _SHARED):
        return None
    package = cls.__module__.partition(".")[0].lstrip("_")
    return cls.__qualname__ if package == "builtins" else f"{package}.{cls.__qualname__}"


def method_of_held(obj: Any, attr: str) -> tuple[str, Kind] | None:
    """The ban of calling a method of an object made outside the agent: a generator, a client, a thread pool."""
    if obj is MISSING or isinstance(obj, type | ModuleType | FunctionType):
        return None
    for cls in type(obj).__mro__:
        full = bans.public(cls.__module__, cls.__qualname__)
        if cls.__module__.startswith("numpy.random."):
            return f"{cls.__qualname__}.{attr}() of a generator made outside the agent,", bans.CHANCE
        if full in bans.HELD:
            return f"{full}.{attr}()", bans.HELD[full]
        root = cls.__module__.partition(".")[0]
        if root in bans.CALLS and cls.__name__.endswith(bans.CLIENTS):
            return f"{root}.{cls.__name__}.{attr}()", bans.OUTSIDE
    return None


def is_recorded(obj: Any) -> bool:
    """A step or an agent: its result is recorded, so it may do what it likes."""
    if obj is MISSING:
        return False
    return any(getattr_static(obj, mark, None) is not None for mark in ("__perdure_step__", "__perdure_agent__"))


def is_durable(obj: Any) -> bool:
    """A step, an agent, or anything of the runtime's own, such as `run` and `step`."""
    if obj is MISSING or isinstance(obj, StandIn):
        return False
    module: Any = obj.__name__ if isinstance(obj, ModuleType) else _module_of(obj)
    return is_recorded(obj) or (isinstance(module, str) and (module == "perdure" or module.startswith("perdure.")))


def _module_of(obj: Any) -> Any:
    if isinstance(obj, type | FunctionType):
        return obj.__module__
    return type(obj).__module__


def makes_steps(obj: Any) -> bool:
    """The runtime's own `step` or `agent`: what is handed to it is not called here."""
    return isinstance(obj, FunctionType | type) and is_durable(obj) and obj.__name__ in {"step", "agent"}
