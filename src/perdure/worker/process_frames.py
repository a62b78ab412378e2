"""What a worker and its child processes say to each other: length-prefixed msgpack over two pipes.

F1. A frame's length is checked before it is read or sent, and its content is decoded into one of the types below.
F2. Small on purpose: a worker that never uses a child process imports nothing more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.base import limits
from perdure.base.records import ErrorData
from perdure.errors import PayloadTooLarge

# A payload and the names around it.
frame_bytes_max = limits.payload_bytes_max + 64 * 1024
_LENGTH_BYTES = 4
_PIECE_BYTES = 1 << 20

in_child = False  # whether this process is such a child


class Hello(msgspec.Struct, frozen=True):
    """The first frame: what the child must have like its parent."""

    path: list[str]
    pythonpath: str | None


class Request(msgspec.Struct, frozen=True):
    module: str
    qualname: str
    payload: bytes
    info: dict[str, Any]


class ErrorInfo(msgspec.Struct, frozen=True):
    error: ErrorData
    kind: str
    retry_after: float | str | None
    bases: tuple[str, ...]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: bytes | None = None
    error: ErrorInfo | None = None


class BrokenFrame(Exception):
    """The other side sent something that is no frame, or stopped inside one."""


def check_frame(body: bytes) -> None:
    """Refuse what no frame can hold."""
    if len(body) > frame_bytes_max:
        raise PayloadTooLarge(
            f"A step's arguments take {len(body)} bytes; a child process takes {frame_bytes_max} at most. "
            f"Pass where the data is instead of the data."
        )


def write_frame(fd: int, body: bytes) -> None:
    """Send one frame: its length, then its bytes."""
    assert len(body) <= frame_bytes_max  # F1
    rest = memoryview(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_frame(fd: int, wait: Callable[[], None] | None = None) -> bytes | None:
    """Receive one frame; None at the end of the stream. `wait` is called before each read that may block."""
    header = _read(fd, _LENGTH_BYTES, wait)
    if not header:
        return None
    length = int.from_bytes(header, "big")
    if len(header) < _LENGTH_BYTES or length > frame_bytes_max:
        raise BrokenFrame
    body = _read(fd, length, wait)
    if len(body) < length:
        raise BrokenFrame
    return body


def _read(fd: int, length: int, wait: Callable[[], None] | None) -> bytes:
    pieces: list[bytes] = []
    while length:
        if wait is not None:
            wait()
        piece = os.read(fd, min(length, _PIECE_BYTES))
        if not piece:
            break
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
