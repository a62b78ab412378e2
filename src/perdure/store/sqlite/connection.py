"""Opening a SQLite file: is it ours, is it sound, is it durable.

S1. Nothing on disk is trusted: whose file, which schema, and its structure are checked before use; a newer schema is refused.
D1. `synchronous=FULL` and WAL hold for every connection, or it is not used (NORMAL lost acknowledged commits in power cuts).
D2. The main file is never opened by anything but SQLite: closing such a descriptor drops the locks of the whole process. The WAL carries no locks.

Things that don't work: `fallocate` for the WAL (its extents are unwritten, so each commit still pays for metadata; zeros are written instead);
`journal_size_limit` while closing (it truncates the WAL that is to be kept); `mmap_size` (an I/O error becomes SIGBUS instead of an exception).
"""

from __future__ import annotations

import array
import errno
import os
import stat
from typing import Any, Final, cast

import apsw

from perdure.base import faults
from perdure.errors import StoreDamaged, StoreTooNew, StoreUnavailable, UsageError
from perdure.store.sqlite.errors import Locked, is_busy, translate
from perdure.store.sqlite.migrations import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION, TABLES

PAGE_BYTES: Final = 8192
CACHE_BYTES: Final = 32 * 1024 * 1024
WAL_PREPARED_BYTES: Final = 6 * 1024 * 1024
WAL_KEPT_BYTES: Final = 16 * 1024 * 1024
QUICK_CHECK_BYTES_MAX: Final = 4 * 1024 * 1024
FREE_BYTES_MIN: Final = 1024 * 1024

OPEN_BEFORE = faults.point("open.before_open", "the path was checked, the file is not opened yet")
OPEN_AFTER = faults.point("open.after_open", "the file is open, nothing was written")
OPEN_WAL = faults.point("open.after_wal", "page size and journal mode are set")
OPEN_PREPARED = faults.point("open.after_prepare", "the WAL was preallocated")
MIGRATE_BEFORE = faults.point("migrate.before_begin", "an older schema was found")
MIGRATE_BEGUN = faults.point("migrate.after_begin", "the migration's transaction is open")
MIGRATE_COMMIT = faults.point("migrate.before_commit", "all statements of the migrations ran")
MIGRATE_AFTER = faults.point("migrate.after_commit", "the schema is new")


def open_connection(path: str, *, patience_ms: int) -> apsw.Connection:
    """A checked, migrated, durable connection. `Locked` if another program is in the way for longer than `patience_ms`."""
    check_path(path)
    if faults.armed:
        faults.hit(OPEN_BEFORE)
    db: apsw.Connection | None = None
    try:
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        db.set_busy_timeout(patience_ms)
        if faults.armed:
            faults.hit(OPEN_AFTER)
        _prepare(db, path)
    except BaseException as exc:
        if db is not None:
            abandon(db)
        if is_busy(exc):
            raise Locked from exc
        if isinstance(exc, apsw.Error):
            raise translate(exc, path) from exc
        raise
    return db


def _prepare(db: apsw.Connection, path: str) -> None:
    if db.readonly("main"):
        raise StoreUnavailable(f"{path}: the file is read-only. Give this user write permission for it")
    version = _identify(db, path)
    _settle(db, path)
    if faults.armed:
        faults.hit(OPEN_WAL)
    if version < SCHEMA_VERSION:
        _migrate(db, path)
        _sync_folder(path)
    _verify(db, path)


def check_path(path: str) -> None:
    """Refuse what cannot become a store, before SQLite gives a vaguer answer."""
    folder = os.path.dirname(path) or "."
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        _check_folder(path, folder)
        return
    except (OSError, ValueError) as exc:
        raise UsageError(f"{path!r}: not a usable path ({exc}). Give the path of a file, such as perdure.db") from exc
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path}: this is a folder, a store is a file. Try {os.path.join(path, 'perdure.db')}")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: this is not a regular file. Give the path of a file, such as perdure.db")
    if not os.access(path, os.R_OK | os.W_OK):
        raise StoreUnavailable(f"{path}: the file is read-only for this user. Give it write permission (chmod u+w), or choose another store")
    if not os.access(folder, os.W_OK):
        raise StoreUnavailable(f"{folder}: the store's folder is read-only for this user, and SQLite needs files beside the store. Give it write permission")


def _check_folder(path: str, folder: str) -> None:
    if not os.path.isdir(folder):
        raise UsageError(f"{path}: the folder {folder} does not exist. Create it (mkdir -p {folder}), or choose another store")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreUnavailable(f"{folder}: the folder is read-only for this user, so no store can be created there. Choose another store")


def _identify(db: apsw.Connection, path: str) -> int:
    """The schema version, 0 for an empty file."""
    try:
        owner, version = _pragma(db, "application_id"), _pragma(db, "user_version")
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except apsw.NotADBError as exc:
        raise UsageError(f"{path}: this is not a SQLite database, or its first bytes are damaged. Choose another store, or restore a backup") from exc
    if owner == 0 and version == 0 and not tables:
        return 0
    if owner != APPLICATION_ID:
        raise UsageError(f"{path}: this database belongs to another application. Choose another store; nothing was changed")
    if version > SCHEMA_VERSION:
        raise StoreTooNew(f"{path}: schema {version} is newer than {SCHEMA_VERSION}, which this version of perdure knows. Upgrade perdure; nothing was changed")
    if version < 1 or (version == SCHEMA_VERSION and not tables >= TABLES):
        raise StoreDamaged(f"{path}: tables are missing or the schema number {version} is wrong. Restore a backup; nothing was changed")
    return int(version)


def _settle(db: apsw.Connection, path: str) -> None:
    """Settings of the file and of this connection."""
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # takes effect in an empty file only
    mode = db.execute("PRAGMA journal_mode = wal").get
    if mode != "wal":
        raise StoreUnavailable(f"{path}: this file system cannot share memory between processes (journal mode {mode}). Use a local disk")
    for setting in _SETTINGS:
        db.execute(setting)
    if (level := _pragma(db, "synchronous")) != 2:
        raise StoreUnavailable(f"{path}: SQLite refuses synchronous=FULL (it says {level}); commits would not be durable")  # D1
    db.wal_autocheckpoint(0)
    keep = array.array("i", [1])
    db.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, keep.buffer_info()[0])
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)


_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = 1",
    "PRAGMA checkpoint_fullfsync = 1",
    f"PRAGMA cache_size = -{CACHE_BYTES // 1024}",
    "PRAGMA mmap_size = 0",
    f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}",
    "PRAGMA temp_store = memory",
    "PRAGMA trusted_schema = 0",
    "PRAGMA cell_size_check = 1",
)


def _migrate(db: apsw.Connection, path: str) -> None:
    """Forward to the newest schema, all in one transaction: killed anywhere, the old generation stays."""
    if faults.armed:
        faults.hit(MIGRATE_BEFORE)
    db.execute("BEGIN IMMEDIATE")
    try:
        if faults.armed:
            faults.hit(MIGRATE_BEGUN)
        version = _identify(db, path)  # another process may have been faster
        for migration in MIGRATIONS:
            if migration.number > version:
                db.execute(migration.sql)
                db.execute(f"PRAGMA user_version = {migration.number}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        if faults.armed:
            faults.hit(MIGRATE_COMMIT)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    if faults.armed:
        faults.hit(MIGRATE_AFTER)


def _verify(db: apsw.Connection, path: str) -> None:
    pages = _pragma(db, "page_count")
    if pages * PAGE_BYTES > QUICK_CHECK_BYTES_MAX:
        return  # reads check what they touch; `check` reads everything
    found = [str(row[0]) for row in db.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        raise StoreDamaged(f"{path}: the file is damaged ({'; '.join(found)}). Restore a backup; nothing was changed")


def prepare_wal(db: apsw.Connection, path: str) -> None:
    """Write zeros behind the WAL's end, so that commits overwrite blocks instead of growing a file. Best effort.

    The write lock keeps every other writer out of the WAL meanwhile; readers stop at the first frame that fails its checksum.
    """
    _check_space(path)
    try:
        db.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return
    try:
        _extend(path + "-wal")
    except OSError as exc:
        if exc.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENOENT):
            raise StoreUnavailable(f"{path}-wal: cannot be written ({exc}). Check the disk and the permissions") from exc
    finally:
        db.execute("ROLLBACK")
    if faults.armed:
        faults.hit(OPEN_PREPARED)


def _extend(wal: str) -> None:
    fd = os.open(wal, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size < WAL_PREPARED_BYTES:
            os.pwrite(fd, bytes(WAL_PREPARED_BYTES - size), size)
            os.fsync(fd)
    finally:
        os.close(fd)


def _check_space(path: str) -> None:
    """A full disk can kill the process through shared memory (SIGBUS), so a worker does not start on one."""
    disk = os.statvfs(os.path.dirname(path) or ".")
    if disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN:
        raise StoreUnavailable(f"{path}: the disk is full (under {FREE_BYTES_MIN // 1024} KiB free). Free some space, then start again")


def _sync_folder(path: str) -> None:
    """The new file's name must survive a power cut too."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def abandon(db: apsw.Connection) -> None:
    """Close a connection that met an error, without touching the files any more."""
    try:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.close(force=True)
    except apsw.Error:
        db.close(force=True)


def leave(db: apsw.Connection) -> None:
    """Close in order: the last connection moves the WAL into the file, and the WAL stays for the next one."""
    db.execute("PRAGMA journal_size_limit = -1")
    db.close()


def _pragma(db: apsw.Connection, name: str) -> Any:
    return cast(Any, db.execute(f"PRAGMA {name}").get)
