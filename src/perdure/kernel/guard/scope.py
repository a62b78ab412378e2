"""What the names in one piece of code stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from perdure.kernel.guard.code import Nested, Reading, Use, read
from perdure.kernel.guard.names import UNKNOWN, Value, attribute, imported, is_durable


@dataclass(frozen=True, slots=True)
class Scope:
    """A piece of code, its names and their values; `local` holds only what it imports."""

    code: CodeType
    function: str
    reading: Reading
    globals: Mapping[str, Any]
    free: Mapping[str, Value]
    local: Mapping[str, Value]

    def walk(self, use: Use) -> list[Value]:
        """The values of `a`, `a.b` and `a.b.c`, up to what belongs to the runtime."""
        path = [self._root(use)]
        for attr in use.attrs:
            if is_durable(path[-1].obj) and not isinstance(path[-1].obj, ModuleType):
                break
            path.append(attribute(path[-1], attr))
        return path

    def inside(self, nested: Nested) -> Scope:
        names = nested.code.co_freevars
        free = {name: value for name, value in {**self.free, **self.local}.items() if name in names}
        return _scope(nested.code, self.function, self.globals, free)

    def _root(self, use: Use) -> Value:
        if use.root in self.local:
            return self.local[use.root]
        if use.where == "free":
            return self.free.get(use.root, UNKNOWN)
        if use.where == "local" or (use.where == "class" and use.root in self.reading.stored):
            return UNKNOWN
        if use.root in self.globals:
            return Value(self.globals[use.root])
        builtins: Any = self.globals.get("__builtins__", {})
        known = cast("dict[str, Any]", builtins if isinstance(builtins, dict) else vars(builtins))
        return Value(known[use.root]) if use.root in known else UNKNOWN


def scope_of(function: FunctionType) -> Scope:
    free: dict[str, Value] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            free[name] = Value(cell.cell_contents)
        except ValueError:
            continue  # Not bound yet: nothing is known of it.
    return _scope(function.__code__, function.__qualname__, function.__globals__, free)


def _scope(code: CodeType, function: str, globals_: Mapping[str, Any], free: Mapping[str, Value]) -> Scope:
    reading = read(code)
    package = str(globals_.get("__package__") or "")
    local = {name: imported(item, package) for name, item in reading.imports.items() if name not in reading.stored}
    return Scope(code, function, reading, globals_, free, local)
