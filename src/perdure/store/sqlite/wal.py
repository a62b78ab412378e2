"""The write-ahead log's length: prepared once, recycled for ever.

D2. The WAL is the only file here that is opened beside SQLite: it carries no locks, the others do.
D5. The WAL does not grow without bound: past 4 MiB it is moved into the file, and the next commit starts it over.
    Readers may hold that up; then it is tried again after every quarter of growth, and past 16 MiB it waits for them.

Things that don't work: `fallocate` (its extents are unwritten, so each commit still pays for metadata; zeros are
written instead); checkpoints on a second connection (the WAL then never starts over).
"""

from __future__ import annotations

import errno
import os
from typing import Final

import apsw

from perdure.base import faults
from perdure.errors import StoreUnavailable
from perdure.store.sqlite.db import PAGE_BYTES, Db
from perdure.store.sqlite.paths import check_space

CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
FORCED_BYTES: Final = 16 * 1024 * 1024
FORCED_WAIT_MS: Final = 500
PREPARED_BYTES: Final = 6 * 1024 * 1024

PREPARED = faults.point("open.after_prepare", "the WAL was preallocated")
BEFORE = faults.point("checkpoint.before", "the WAL is long enough to be moved into the file")
AFTER = faults.point("checkpoint.after", "the WAL was moved into the file, as far as readers allow")

_WITHOUT_ROOM: Final = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENOENT)


class Wal:
    def __init__(self) -> None:
        self.pages = 0  # as of the last commit
        self._wait_until(CHECKPOINT_BYTES // PAGE_BYTES)

    def _wait_until(self, pages: int) -> None:
        self._move_at = pages
        self.overdue_at = 2 * pages  # nobody called `checkpoint`

    def on_commit(self, _db: object, _name: str, pages: int) -> int:
        self.pages = pages
        return apsw.SQLITE_OK

    @property
    def long(self) -> bool:
        return self.pages > self._move_at

    @property
    def forced(self) -> bool:
        """Readers kept it alive for long: it is worth waiting for them."""
        return self.pages * PAGE_BYTES > FORCED_BYTES

    def move(self, db: Db) -> None:
        self._move(db, apsw.SQLITE_CHECKPOINT_PASSIVE)

    def move_patiently(self, db: Db) -> None:
        db.set_busy_timeout(FORCED_WAIT_MS)
        self._move(db, apsw.SQLITE_CHECKPOINT_RESTART)

    def _move(self, db: Db, mode: int) -> None:
        if faults.armed:
            faults.hit(BEFORE)
        try:
            frames, moved = db.wal_checkpoint(mode=mode)
        except apsw.BusyError:
            frames, moved = self.pages, -1  # another checkpoint is at work, or a reader outlasted our patience
        if frames == moved:
            self.pages = 0
            self._wait_until(CHECKPOINT_BYTES // PAGE_BYTES)
        else:
            # What readers still need cannot be moved. Trying again at once would cost two fsyncs for nothing.
            self._wait_until(self.pages + self.pages // 4)
        if faults.armed:
            faults.hit(AFTER)


def prepare(db: Db, path: str) -> None:
    """Write zeros behind the WAL's end, so that commits overwrite blocks instead of growing a file. Best effort.

    The write lock keeps every other writer out of the WAL meanwhile; readers stop at the first frame that fails its
    checksum.
    """
    check_space(path)
    try:
        db.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return
    try:
        _extend(path + "-wal")
    except OSError as exc:
        if exc.errno not in _WITHOUT_ROOM:
            raise StoreUnavailable(
                f"{path}-wal: cannot be written ({exc}). Check the disk and the permissions"
            ) from exc
    finally:
        db.execute("ROLLBACK")
    if faults.armed:
        faults.hit(PREPARED)


def _extend(wal: str) -> None:
    fd = os.open(wal, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size < PREPARED_BYTES:
            os.pwrite(fd, bytes(PREPARED_BYTES - size), size)
            os.fsync(fd)
    finally:
        os.close(fd)
