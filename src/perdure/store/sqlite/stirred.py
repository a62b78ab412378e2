"""A cheap look from outside: has anybody written to the file? A worker asks two hundred times a second.

The WAL's modification time moves with every commit. File systems may keep it in steps of some milliseconds, so for a moment after each move the
answer stays yes. The WAL carries no locks, and looking at it opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from os import stat as file_stat  # taken before the guard puts a stand-in in its place
from typing import Final

_DOUBT_S: Final = 0.03


class Stirred:
    def __init__(self, path: str, monotonic: Callable[[], float]) -> None:
        self._wal = path + "-wal"
        self._monotonic = monotonic
        self._seen: tuple[int, int, int] | None = None
        self._doubt_until = 0.0

    def look(self) -> bool:
        try:
            stat = file_stat(self._wal)  # noqa: PTH116  # a Path would cost more than the call
        except OSError:
            return True
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen:
            self._seen = seen
            self._doubt_until = self._monotonic() + _DOUBT_S
            return True
        return self._monotonic() < self._doubt_until
