"""What a compiled function names, calls and imports, read from its bytecode.

Read from the bytecode, not from the source: it is what will run (a file may have been edited since), it is always
there, and the compiler has already decided which names are local. Positions tell which call a name belongs to.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal, TypeAlias

Where: TypeAlias = Literal["local", "free", "global", "class"]
Place: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Call:
    """How something is called; `args` is None when it is not known (`f(*args, **kwargs)`)."""

    start: Place
    end: Place
    args: int | None
    keywords: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """A name with its attributes, as in `a.b.c`, and how it is used."""

    root: str
    where: Where
    attrs: tuple[str, ...]
    line: int
    starts: tuple[Place, ...]
    end: Place
    index: int

    @property
    def text(self) -> str:
        return ".".join((self.root, *self.attrs))


@dataclass(frozen=True, slots=True)
class Import:
    """`from module import attr`, or `import module` where attr is None."""

    module: str
    attr: str | None
    level: int


@dataclass(frozen=True, slots=True)
class Nested:
    """A function, lambda, comprehension or class body inside."""

    code: CodeType
    start: Place
    end: Place
    index: int


@dataclass(slots=True)
class Reading:
    uses: list[Use] = field(default_factory=list[Use])
    calls: list[Call] = field(default_factory=list[Call])
    nested: list[Nested] = field(default_factory=list["Nested"])
    imports: dict[str, Import] = field(default_factory=dict[str, Import])
    stored: set[str] = field(default_factory=set[str])
    attributes: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def call_of(self, use: Use) -> Call | None:
        """The call of this very name, if it is called: it starts where the name starts, and ends first behind it."""
        found = [call for call in self.calls if call.start in use.starts and call.end > use.end]
        return min(found, key=lambda call: call.end, default=None)

    def calls_around(self, start: Place, end: Place) -> Iterator[Use]:
        """The names whose calls have what stands there among their arguments."""
        for call in self.calls:
            if call.start < start and call.end > end:
                yield from (each for each in self.uses if call.start in each.starts and each.end < call.end)

    def takers_of(self, nested: Nested) -> Iterator[Use]:
        """The names that a nested function is handed to when it is made: its decorators, or a call around a lambda."""
        yield from self.calls_around(nested.start, nested.end)
        for use in reversed(self.uses):
            if use.index < nested.index:
                if use.line < nested.code.co_firstlineno:
                    return
                yield use


_ROOTS: dict[str, Where] = {
    "LOAD_GLOBAL": "global",
    "LOAD_NAME": "class",
    "LOAD_DEREF": "free",
    "LOAD_CLASSDEREF": "free",
    "LOAD_FROM_DICT_OR_DEREF": "free",
    "LOAD_FROM_DICT_OR_GLOBALS": "class",
    "LOAD_FAST": "local",
    "LOAD_FAST_CHECK": "local",
    "LOAD_FAST_BORROW": "local",
}
_SILENT = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "SWAP", "POP_TOP"})


def read(code: CodeType) -> Reading:
    reading = Reading()
    steps = [ins for ins in dis.get_instructions(code) if ins.opname not in _SILENT]
    line = code.co_firstlineno
    names: tuple[str, ...] = ()
    position = 0
    while position < len(steps):
        ins = steps[position]
        line = _line(ins) or line
        if isinstance(ins.argval, CodeType):
            reading.nested.append(Nested(ins.argval, *_span(ins), position))
        elif where := _ROOTS.get(ins.opname):
            use = _chain(steps, position, where, line)
            reading.uses.append(use)
            position += len(use.attrs)
        elif ins.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
            reading.attributes.append((ins.argval, line))
        elif ins.opname == "KW_NAMES":
            names = code.co_consts[ins.arg or 0]
        elif ins.opname in {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}:
            if ins.opname == "CALL_KW":
                names = steps[position - 1].argval
            _add_call(reading, ins, names)
            names = ()
        elif ins.opname.startswith("STORE_") and isinstance(ins.argval, str):
            _store(reading, steps, position)
        position += 1
    return reading


def _line(ins: dis.Instruction) -> int | None:
    return ins.positions.lineno if ins.positions is not None else None


def _span(ins: dis.Instruction) -> tuple[Place, Place]:
    """Start and end; without columns (`-X no_debug_ranges`) nothing lies around anything, so no call is attributed."""
    at = ins.positions
    if at is None or at.lineno is None or at.end_lineno is None or at.col_offset is None or at.end_col_offset is None:
        return (0, 0), (0, 0)
    return (at.lineno, at.col_offset), (at.end_lineno, at.end_col_offset)


def _chain(steps: list[dis.Instruction], position: int, where: Where, line: int) -> Use:
    first = last = steps[position]
    attrs: list[str] = []
    for ins in steps[position + 1 :]:
        if ins.opname not in {"LOAD_ATTR", "LOAD_METHOD"}:
            break
        attrs.append(ins.argval)
        last = ins
    (start, _), (start_last, end) = _span(first), _span(last)
    # Where an attribute stands on a line of its own, the compiler lets the call start there instead of at the root.
    return Use(str(first.argval), where, tuple(attrs), line, (start, start_last), end, position)


def _add_call(reading: Reading, ins: dis.Instruction, names: tuple[str, ...]) -> None:
    start, end = _span(ins)
    if end != (0, 0):
        args = None if ins.opname == "CALL_FUNCTION_EX" else (ins.arg or 0) - len(names)
        reading.calls.append(Call(start, end, args, names))


def _store(reading: Reading, steps: list[dis.Instruction], position: int) -> None:
    name: str = steps[position].argval
    found = _imported(steps, position)
    if found is None or reading.imports.get(name, found) != found:
        reading.stored.add(name)
    else:
        reading.imports[name] = found


def _imported(steps: list[dis.Instruction], position: int) -> Import | None:
    back = position - 1
    if back < 0 or steps[back].opname not in {"IMPORT_FROM", "IMPORT_NAME"}:
        return None
    attr: str | None = steps[back].argval if steps[back].opname == "IMPORT_FROM" else None
    while steps[back].opname != "IMPORT_NAME":
        back -= 1
    module: str = steps[back].argval
    wanted: Any = steps[back - 1].argval
    level = steps[back - 2].argval
    if attr is None:
        # `import a.b` binds `a`.
        return Import(module.partition(".")[0], None, 0)
    # `import a.b as c` also loads by IMPORT_FROM, but asks for no names.
    return Import(module, attr if wanted else None, level if isinstance(level, int) else 0)
