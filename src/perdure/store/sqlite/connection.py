"""Opening a SQLite file: is it ours, is it sound, is it durable.

S1. Nothing on disk is trusted: whose file, which schema, and its structure are checked before use; a newer schema is
    refused.
D1. `synchronous=FULL` and WAL hold for every connection, or it is not used (NORMAL lost commits in power cuts).
D2. The main file is never opened by anything but SQLite: closing such a descriptor drops the process's locks.

Things that don't work: keeping the WAL after closing (its frames stay valid, and are replayed over a backup that is
copied back); `mmap_size` (an I/O error becomes SIGBUS instead of an exception).
"""

from __future__ import annotations

from typing import Any, Final, cast

import apsw

from perdure.base import faults
from perdure.errors import StoreDamaged, StoreTooNew, StoreUnavailable, StoreUnusable
from perdure.store.sqlite.db import PAGE_BYTES, Db
from perdure.store.sqlite.errors import Locked, is_busy, translate
from perdure.store.sqlite.migrations import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION, TABLES
from perdure.store.sqlite.paths import check_path, read_only, sync_folder

CACHE_BYTES: Final = 8 * 1024 * 1024
WAL_KEPT_BYTES: Final = 16 * 1024 * 1024
QUICK_CHECK_BYTES_MAX: Final = 4 * 1024 * 1024

OPEN_BEFORE = faults.point("open.before_open", "the path was checked, the file is not opened yet")
OPEN_AFTER = faults.point("open.after_open", "the file is open, nothing was written")
OPEN_WAL = faults.point("open.after_wal", "page size and journal mode are set")
MIGRATE_BEFORE = faults.point("migrate.before_begin", "an older schema was found")
MIGRATE_BEGUN = faults.point("migrate.after_begin", "the migration's transaction is open")
MIGRATE_COMMIT = faults.point("migrate.before_commit", "all statements of the migrations ran")
MIGRATE_AFTER = faults.point("migrate.after_commit", "the schema is new")


def open_connection(path: str, *, patience_ms: int) -> Db:
    """A checked, migrated, durable connection. `Locked` if another program is in the way for too long."""
    check_path(path)
    if faults.armed:
        faults.hit(OPEN_BEFORE)
    db: Db | None = None
    try:
        db = cast("Db", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE))
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


def _prepare(db: Db, path: str) -> None:
    if db.readonly("main"):
        raise read_only(path)
    version = _identify(db, path)
    _settle(db, path)
    if faults.armed:
        faults.hit(OPEN_WAL)
    if version < SCHEMA_VERSION:
        _migrate(db, path)
    _verify(db, path)


def _identify(db: Db, path: str) -> int:
    """The schema version, 0 for an empty file."""
    own = not db.in_transaction
    try:
        if own:
            db.execute("BEGIN")  # one look: another process may be creating the store
        owner, version = _pragma(db, "application_id"), _pragma(db, "user_version")
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if own:
            db.execute("COMMIT")
    except apsw.NotADBError as exc:
        raise StoreUnusable(
            f"{path}: this is not a SQLite database, or its first bytes are damaged. "
            "Choose another store, or restore a backup"
        ) from exc
    if owner == 0 and version == 0 and not tables:
        return 0
    if owner != APPLICATION_ID:
        raise StoreUnusable(
            f"{path}: this database belongs to another application. Choose another store; nothing was changed"
        )
    if version > SCHEMA_VERSION:
        raise StoreTooNew(
            f"{path}: its schema {version} is newer than {SCHEMA_VERSION}, the newest that this perdure knows. "
            "Upgrade perdure; nothing was changed"
        )
    if version < 1 or (version == SCHEMA_VERSION and not tables >= TABLES):
        raise StoreDamaged(
            f"{path}: tables are missing or the schema number {version} is wrong. Restore a backup; nothing was changed"
        )
    return int(version)


def _settle(db: Db, path: str) -> None:
    """Settings of the file and of this connection."""
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # takes effect in an empty file only
    mode = db.execute("PRAGMA journal_mode = wal").get
    if mode != "wal":
        raise StoreUnavailable(
            f"{path}: this file system cannot share memory between processes (journal mode {mode}). Use a local disk"
        )
    for setting in _SETTINGS:
        db.execute(setting)
    if (level := _pragma(db, "synchronous")) != 2:
        raise StoreUnavailable(
            f"{path}: SQLite refuses synchronous=FULL (it says {level}); commits would not be durable"
        )  # D1
    db.wal_autocheckpoint(0)
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


def _migrate(db: Db, path: str) -> None:
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
        sync_folder(path)  # before the commit: an open that fails or dies here leaves it to the next one
        if faults.armed:
            faults.hit(MIGRATE_COMMIT)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    if faults.armed:
        faults.hit(MIGRATE_AFTER)


def _verify(db: Db, path: str) -> None:
    pages = _pragma(db, "page_count")
    if pages * PAGE_BYTES > QUICK_CHECK_BYTES_MAX:
        return  # reads check what they touch; `check` reads everything
    found = [str(row[0]) for row in db.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        raise StoreDamaged(f"{path}: the file is damaged ({'; '.join(found)}). Restore a backup; nothing was changed")


def abandon(db: Db) -> None:
    """Close a connection that met an error, without touching the files any more."""
    try:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.close(True)
    except apsw.Error:
        db.close(True)


def leave(db: Db) -> None:
    """Close in order: the last connection moves the WAL into the file and removes it. The file is all there is."""
    db.close()


def _pragma(db: Db, name: str) -> Any:
    return db.execute(f"PRAGMA {name}").get
