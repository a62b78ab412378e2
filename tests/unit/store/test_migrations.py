"""Migrations: forward, atomic, one way to a schema (Y14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest
from tests.unit.store.support import add, hold, run

from perdure.base import faults
from perdure.errors import StoreTooNew, StoreUnavailable
from perdure.store.sqlite import connection
from perdure.store.sqlite.migrations import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION, TABLES, Migration

if TYPE_CHECKING:
    from pathlib import Path

NEXT = Migration(SCHEMA_VERSION + 1, "next", "CREATE TABLE next (x TEXT) STRICT; ALTER TABLE runs ADD COLUMN y TEXT;")


def schema(path: Path) -> dict[str, str]:
    db = apsw.Connection(str(path))
    found = dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall())
    db.close()
    return found


def version(path: Path) -> int:
    db = apsw.Connection(str(path))
    found = db.execute("PRAGMA user_version").get
    db.close()
    return found


async def one_record(store) -> None:
    worker, held = await hold(store, "old")
    await add(store, worker, held, 1)


async def look(store) -> None:
    assert len(await store.journal((await store.run("old")).num)) == 1
    assert await store.check() == []


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, NEXT))
    monkeypatch.setattr(connection, "SCHEMA_VERSION", NEXT.number)


def test_migrations_are_numbered_without_gaps() -> None:
    """1, 2, 3, …"""
    assert [migration.number for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_a_fresh_store_says_whose_it_is(tmp_path: Path) -> None:
    """Application id, schema number, and all tables."""
    path = tmp_path / "p.db"
    run(path, one_record)
    db = apsw.Connection(str(path))
    assert db.execute("PRAGMA application_id").get == APPLICATION_ID
    db.close()
    assert version(path) == SCHEMA_VERSION
    assert schema(path).keys() >= TABLES


def test_an_older_store_is_migrated(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What was in it is still there, and it equals a fresh one."""
    old, fresh = tmp_path / "old.db", tmp_path / "fresh.db"
    run(old, one_record)
    request.getfixturevalue("newer")
    run(old, look)
    run(fresh, one_record)
    assert schema(old) == schema(fresh)
    assert version(old) == NEXT.number


def test_the_last_release_refuses_the_migrated_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """StoreTooNew, and nothing is changed."""
    path = tmp_path / "p.db"
    with monkeypatch.context() as patch:
        patch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, NEXT))
        patch.setattr(connection, "SCHEMA_VERSION", NEXT.number)
        run(path, one_record)
    before = path.read_bytes()
    with pytest.raises(StoreTooNew):
        run(path, look)
    assert path.read_bytes() == before


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("point", ["before_begin", "after_begin", "before_commit", "after_commit"])
def test_a_failed_migration_can_be_tried_again(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old generation stays readable, and the next opening migrates."""
    path = tmp_path / "p.db"
    with monkeypatch.context() as patch:
        patch.setattr(connection, "MIGRATIONS", MIGRATIONS)
        patch.setattr(connection, "SCHEMA_VERSION", SCHEMA_VERSION)
        run(path, one_record)
    faults.arm(f"migrate.{point}:error")
    try:
        with pytest.raises(StoreUnavailable):
            run(path, look)
    finally:
        faults.arm("")
    assert version(path) == (NEXT.number if point == "after_commit" else SCHEMA_VERSION)
    run(path, look)
    assert version(path) == NEXT.number
