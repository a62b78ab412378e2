"""What refuses hidden state while agent code runs: an audit hook, and stand-ins where no audit event is raised.

Things that don't work: to replace `datetime.datetime` by a subclass (C code makes the original, `isinstance` and
pickles disagree) or to set attributes of its type (immutable), so two entries of the type's dictionary are replaced; to
replace `os.environ` (references taken earlier go around, so the methods of its class are replaced); a trace function
(slows every line). What is left open stands in bans.
"""

from __future__ import annotations

import _thread
import copy
import gc
import os
import random
import sys
import threading
import time
import uuid
from _thread import allocate_lock, get_ident
from collections.abc import Iterable
from datetime import datetime
from types import BuiltinFunctionType, MethodType
from typing import Any

from perdure.kernel.guard import bans
from perdure.kernel.guard.bans import Kind
from perdure.kernel.guard.frames import caller
from perdure.kernel.guard.marks import marked
from perdure.kernel.guard.standins import (
    dressed,
    stop,
    watch_builtin,
    watch_class_method,
    watch_clock,
    watch_conversion,
    watch_function,
)

_EVENTS: dict[str, Kind] = {
    "open": bans.OUTSIDE,
    "builtins.input": bans.ASKING,
    "_thread.start_new_thread": bans.THREADS,
    "_thread.start_joinable_thread": bans.THREADS,
    "os.fork": bans.THREADS,
    "os.forkpty": bans.THREADS,
    "os.putenv": bans.PLACE,
    "os.unsetenv": bans.PLACE,
    "time.sleep": bans.SLEEP,
}
_FAMILIES = frozenset(
    {"os", "pathlib", "glob", "shutil", "tempfile", "fcntl", "mmap", "subprocess", "pty", "signal", "resource"}
    | {"socket", "urllib", "http", "ftplib", "imaplib", "nntplib", "poplib", "smtplib", "telnetlib", "webbrowser"}
    | {"sqlite3", "ctypes", "syslog", "msvcrt", "winreg"}
)
_EVENT_NAMES = {"builtins.input": "input"}

_lock = allocate_lock()
_installed = False


def install() -> None:
    """Put the hooks in place, once for the process; there is no way back, and no need for one."""
    global _installed  # noqa: PLW0603  # a process has one interpreter to hook
    with _lock:
        if _installed:
            return
        _installed = True
        _watch_clocks()
        _watch_datetime()
        _watch_chance()
        _watch_os()
        _watch_threads()
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if marked and get_ident() in marked:
        kind = _EVENTS.get(event) or (bans.OUTSIDE if event.partition(".")[0] in _FAMILIES else None)
        if kind is not None:
            detail = args[0] if event == "open" and args else None
            if not _is_time_zone(detail):
                stop(_EVENT_NAMES.get(event, event), kind, detail)


def _is_time_zone(path: object) -> bool:
    """The zone tables of the machine are opened from C, with no frame that would tell; they count as code."""
    zoneinfo: Any = sys.modules.get("zoneinfo")
    return zoneinfo is not None and isinstance(path, str) and path.startswith(zoneinfo.TZPATH)


def _there(module: Any, names: str) -> Iterable[str]:
    """Those of the names that this version and platform has."""
    return (name for name in names.split() if hasattr(module, name))


def _watch_clocks() -> None:
    for name in _there(time, "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns"):
        watch_clock(time, name, bans.CLOCK)
    for name in _there(time, "process_time process_time_ns thread_time thread_time_ns"):
        watch_clock(time, name, bans.CLOCK)
    for name in _there(time, "clock_gettime clock_gettime_ns"):
        watch_builtin(time, name, bans.CLOCK, reads_only=True)
    for name in _there(time, "localtime gmtime ctime asctime strftime"):
        watch_conversion(time, name, bans.CLOCK)
    watch_builtin(time, "sleep", bans.SLEEP)


def _watch_datetime() -> None:
    """`now` and `utcnow` read the clock in C, and what reaches them by a property or a method of an object the scan does not see."""
    try:
        import ctypes  # 5 ms that only a process with a worker should pay
    except ImportError:
        return  # A Python built without it: what the scan sees is still refused.
    members: dict[str, Any] = gc.get_referents(vars(datetime))[0]
    for name in ("now", "utcnow"):
        watch_class_method(members, datetime, name, bans.CLOCK)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))


def _watch_chance() -> None:
    hidden: Any = vars(random)["_inst"]  # the generator behind the module's functions
    for name, value in list(vars(random).items()):
        if isinstance(value, BuiltinFunctionType | MethodType) and value.__self__ is hidden:
            watch_builtin(random, name, bans.CHANCE, reads_only=True)
    _watch_seed(random.Random)
    for name in _there(os, "urandom getrandom"):
        watch_builtin(os, name, bans.CHANCE, reads_only=True)
    setattr(random, "_urandom", os.urandom)  # noqa: B010  # private to type checkers; what SystemRandom and secrets draw from
    for name in _there(uuid, "uuid1 uuid4 uuid6 uuid7"):
        watch_function(uuid, name, f"uuid.{name}", bans.NAMES)


def _watch_seed(cls: Any) -> None:
    original = cls.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        # A copy of a generator is made unseeded and then given the state of the first.
        if a is None and marked and get_ident() in marked and not _is_copying():
            stop("random.Random.seed", bans.CHANCE)
        original(self, a, version)

    cls.seed = dressed(seed, original)


def _is_copying() -> bool:
    maker = caller(3)
    return maker is not None and maker.f_code.co_filename == copy.__file__


def _watch_os() -> None:
    for name in _there(os, "getpid getppid cpu_count process_cpu_count getcwd getcwdb getloadavg times getlogin"):
        watch_builtin(os, name, bans.PLACE, reads_only=True)
    for name in _there(os, "stat lstat access readlink statvfs pipe"):
        original = getattr(os, name)
        watch_builtin(os, name, bans.OUTSIDE)
        # shutil looks functions up in these to choose between its safe and its unsafe way.
        for supports in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if original in supports:
                supports.add(getattr(os, name))
    for name in _there(os, "getenv getenvb"):
        watch_function(os, name, f"os.{name}", bans.PLACE)
    environ = type(os.environ)
    for name in _there(environ, "__getitem__ __setitem__ __delitem__ __iter__ __len__ copy setdefault"):
        watch_function(environ, name, "os.environ", bans.PLACE)


def _watch_threads() -> None:
    # Audited only from Python 3.12 on. threading keeps a name of its own.
    for name in _there(_thread, "start_new_thread start_new"):
        watch_builtin(_thread, name, bans.THREADS)
    for name in _there(threading, "_start_new_thread"):
        setattr(threading, name, _thread.start_new_thread)
