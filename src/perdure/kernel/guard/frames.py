"""Whose code a frame is, and which line of the agent's is to blame for a call.

G4. The line named is the innermost one of the user's code; if there is none, that of a library's coroutine in the run.
G5. What the runtime does for itself, and machinery without influence on results, is never refused.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from enum import Enum, auto
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from types import FrameType


class Whose(Enum):
    USER = auto()
    LIBRARY = auto()
    STDLIB = auto()
    QUIET = auto()
    TOOL = auto()
    LOOP = auto()
    RUNTIME = auto()


@dataclass(frozen=True, slots=True)
class Blame:
    """The agent's line, the function it stands in, and what that line called (None: the hooked name itself)."""

    file: str
    line: int
    function: str
    called: str | None


_RUNTIME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_STDLIB = tuple({sysconfig.get_path(key) + os.sep for key in ("stdlib", "platstdlib")})
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))

# Writes for people, finds code and its source, reads tables of the machine: nothing of it comes back to the agent.
_QUIET = (
    *(name + os.sep for name in ("logging", "importlib", "zoneinfo")),
    *("traceback.py", "linecache.py", "tokenize.py", "warnings.py", "inspect.py", "tracemalloc.py", "zipimport.py"),
)
# The same, but only for what they do themselves: the code they call may be the agent, started under a debugger.
_TOOLS = ("pdb.py", "bdb.py", "cmd.py", "code.py", "_colorize.py", "_pyrepl" + os.sep)
_LIBRARY_TOOLS = (
    *(name + os.sep for name in ("structlog", "loguru", "rich", "tqdm", "opentelemetry", "sentry_sdk", "logfire")),
    *(name + os.sep for name in ("debugpy", "pydevd", "_pydevd_bundle", "pytz", os.path.join("dateutil", "tz"))),
    os.path.join("pydantic", "plugin") + os.sep,
)
_TYPED_IN = ("<stdin>", "<ipython", "<console>", "<doctest", "<python-input")

_known: dict[str, Whose] = {}
_own: set[str] = set()
_own_folders: set[str] = set()


def claim(file: str, folder: str | None = None) -> None:
    """This file, and all in this folder, is the user's code, wherever it is installed."""
    if file in _own and (folder is None or folder in _own_folders):
        return
    _own.add(file)
    if folder is not None:
        _own_folders.add(folder)
    _known.clear()


def whose(file: str) -> Whose:
    answer = _known.get(file)
    if answer is None:
        answer = _known[file] = _classify(file)
    return answer


def _classify(file: str) -> Whose:
    if file in _own:
        return Whose.USER
    if file.startswith("<"):
        if file.startswith(("<frozen importlib", "<frozen zipimport")):
            return Whose.QUIET
        # Generated code (dataclasses, named tuples) acts for whoever calls it, as the standard library does.
        return Whose.USER if file.startswith(_TYPED_IN) else Whose.STDLIB
    if file.startswith(_RUNTIME):
        return Whose.RUNTIME
    rest = _in_library(file)
    if rest is not None:
        if any(file.startswith(own) for own in _own_folders):
            return Whose.USER
        return Whose.TOOL if rest.startswith(_LIBRARY_TOOLS) else Whose.LIBRARY
    for root in _STDLIB:
        if file.startswith(root):
            return _classify_stdlib(file[len(root) :])
    return Whose.USER


def _classify_stdlib(rest: str) -> Whose:
    if rest.startswith("asyncio" + os.sep):
        return Whose.LOOP
    if rest.startswith(_TOOLS):
        return Whose.TOOL
    return Whose.QUIET if rest.startswith(_QUIET) else Whose.STDLIB


def _in_library(file: str) -> str | None:
    """The path below the folder where packages are installed."""
    for mark in _INSTALLED:
        _, found, rest = file.rpartition(mark)
        if found:
            return rest
    return None


def blame(frame: FrameType | None, *, reads_only: bool) -> Blame | None:
    """Who asked for this, seen from `frame` outwards; None if it is to be let through (G5).

    asyncio reads the clock and its debug switch for itself, so its reads pass; what it opens or starts is the agent's
    doing.
    """
    inner: FrameType | None = None
    guilty: FrameType | None = None
    before: FrameType | None = None
    library: FrameType | None = None
    while frame is not None:
        code = frame.f_code
        whom = whose(code.co_filename)
        if whom is Whose.QUIET or code.co_name == "__del__" or code.co_qualname == "finalize.__call__":
            return None  # The collector runs finalizers wherever it happens to start.
        if whom is Whose.RUNTIME:
            break
        if guilty is None and library is None and (whom is Whose.TOOL or (whom is Whose.LOOP and reads_only)):
            return None
        if whom is Whose.USER and guilty is None:
            guilty, before = frame, inner
        elif whom is Whose.LIBRARY and guilty is None:
            library = frame
        inner = frame
        frame = frame.f_back
    if guilty is None and library is not None and library.f_code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
        # A library's coroutine on the run's loop is the agent's doing; a plain call into a library is the runtime's.
        guilty = library
    if guilty is None:
        return None
    code = guilty.f_code
    return Blame(code.co_filename, guilty.f_lineno, code.co_qualname, _called(before))


def _called(frame: FrameType | None) -> str | None:
    if frame is None:
        return None
    module = frame.f_globals.get("__name__", "?")
    return f"{module}.{frame.f_code.co_qualname}"


def caller(depth: int) -> FrameType | None:
    return sys._getframe(depth + 1)
