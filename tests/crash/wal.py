"""Torn images of a store: what a disk may hold when the machine dies while the last commit is on its way."""

from __future__ import annotations

import random
import struct
from pathlib import Path

HEADER = 32
FRAME_HEADER = 24


def last_commit(wal: bytes) -> tuple[int, int]:
    """Where the frames of the last transaction begin and end."""
    page = struct.unpack(">I", wal[8:12])[0]
    salts = wal[16:24]
    size = FRAME_HEADER + page
    begin = end = at = HEADER
    while at + size <= len(wal) and wal[at + 8 : at + 16] == salts:
        at += size
        if struct.unpack(">I", wal[at - size + 4 : at - size + 8])[0]:  # a commit frame
            begin, end = end, at
    assert begin < end, "there is no transaction in the WAL"
    return begin, end


def tear(wal: bytes, draw: random.Random) -> bytes:
    """The WAL with its last commit incomplete: cut off, never written from somewhere on, or with some of its bytes wrong."""
    begin, end = last_commit(wal)
    at = draw.randrange(begin, end)
    match draw.choice(("cut", "zeros", "garbage", "bit", "none")):
        case "cut":
            return wal[:at]
        case "zeros":
            return wal[:at] + bytes(len(wal) - at)
        case "garbage":
            length = draw.randint(1, end - at)
            return wal[:at] + draw.randbytes(length) + wal[at + length :]
        case "bit":
            spoilt = bytearray(wal)
            # SQLite's checksum covers a frame's header up to its salts, and its page.
            frame = (end - begin) // (struct.unpack(">I", wal[8:12])[0] + FRAME_HEADER)
            size = (end - begin) // frame
            spoilt[begin + draw.randrange(frame) * size + draw.choice((0, 4, 12, FRAME_HEADER, size - 1))] ^= (
                1 << draw.randrange(8)
            )
            return bytes(spoilt)
        case _:
            return wal[:begin] + bytes(len(wal) - begin)


class Image:
    """The files of a store whose processes are dead, to be put back in torn versions."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.main = store.read_bytes()
        self.wal = store.with_name(store.name + "-wal").read_bytes()

    def put_back_torn(self, draw: random.Random) -> None:
        for suffix in ("-shm", "-wal", ""):
            self.store.with_name(self.store.name + suffix).unlink(missing_ok=True)
        self.store.write_bytes(self.main)
        self.store.with_name(self.store.name + "-wal").write_bytes(tear(self.wal, draw))
