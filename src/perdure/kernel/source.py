"""Where in the user's code something happened: file and line for messages."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType, FrameType
from typing import Any

_PERDURE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple({sysconfig.get_path(key) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_runtime_file(file: str) -> bool:
    return file.startswith(_PERDURE)


def is_user_code(code: CodeType) -> bool:
    file = code.co_filename
    return not file.startswith((_PERDURE, "<frozen", *_LIBRARIES))


def agent_line(frame: FrameType | None = None) -> tuple[str, int]:
    """File and line of the innermost frame that is the user's."""
    frame = frame or sys._getframe(1)
    outermost: FrameType | None = frame
    while frame is not None:
        if is_user_code(frame.f_code):
            return frame.f_code.co_filename, frame.f_lineno
        outermost = frame
        frame = frame.f_back
    return (outermost.f_code.co_filename, outermost.f_lineno) if outermost else ("?", 0)


def waiting_line(coro: Any) -> tuple[str, int]:
    """File and line where a suspended coroutine waits, in the innermost frame that is the user's."""
    found = ("?", 0)
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None) or getattr(coro, "ag_frame", None)
        if frame is not None and is_user_code(frame.f_code):
            found = (frame.f_code.co_filename, frame.f_lineno)
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None) or getattr(coro, "ag_await", None)
    return found
