"""What can be opened as a store, and what the answer is where it cannot."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest
from tests.unit.store.support import hold, make, run

from perdure.base.world import RealWorld
from perdure.errors import PerdureError, StoreDamaged, StoreTooNew, StoreUnavailable, UsageError
from perdure.store.open import open_store
from perdure.store.sqlite import connection
from perdure.store.sqlite.migrations import APPLICATION_ID, SCHEMA_VERSION
from perdure.store.sqlite.wal import PREPARED_BYTES
from perdure.testing.conformance.kit import new


def refusal(path: Path) -> PerdureError:
    """What opening that path ends in."""

    async def attempt() -> None:
        await make(path).open(worker=True)

    with pytest.raises(PerdureError) as caught:
        asyncio.run(attempt())
    return caught.value


@pytest.mark.parametrize(
    ("url", "word"),
    [
        (":memory:", "survive this process"),
        ("sqlite:///:memory:", "survive this process"),
        ("", "must be a file"),
        ("postgresql://host/db", "not there yet"),
        ("postgres://host/db", "not there yet"),
        ("mysql://host/db", "unknown kind of store"),
        ("sqlite://host/path", "sqlite:///"),
        ("sqlite:///p.db?mode=ro", "takes no options"),
        ("file:p.db", "must be a file"),
        ("a\0b", "NUL"),
    ],
)
def test_a_url_that_is_no_store_is_refused_at_once(url: str, word: str) -> None:
    """UsageError with the reason and a way out."""
    with pytest.raises(UsageError, match=word):
        open_store(url, RealWorld())


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("p.db", "p.db"),
        ("sqlite:///p.db", "p.db"),
        ("sqlite:///sub/p%20q.db", "sub/p q.db"),
        ("sqlite:////abs/p.db", "/abs/p.db"),
        ("/abs/p.db", "/abs/p.db"),
    ],
)
def test_a_path_is_fixed_when_it_is_given(url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths belong to the folder of that moment; agent code may change it."""
    monkeypatch.chdir(tmp_path)
    store = open_store(url, RealWorld())
    assert store.url == url
    assert store._engine.path == str(tmp_path / path)  # type: ignore[attr-defined]


def test_a_link_is_followed_once(tmp_path: Path) -> None:
    """The log that is prepared and watched is the one that SQLite writes: beside the real file."""
    real = tmp_path / "real" / "p.db"
    real.parent.mkdir()
    link = tmp_path / "p.db"
    link.symlink_to(real)

    async def scenario() -> None:
        store = open_store(str(link), RealWorld())
        await store.open(worker=True)
        assert Path(f"{real}-wal").stat().st_size >= PREPARED_BYTES
        store.stirred()
        assert store._stirred._seen is not None
        await store.close()

    asyncio.run(scenario())


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    """With the path that was given."""
    link = tmp_path / "p.db"
    link.symlink_to(link)
    with pytest.raises(UsageError, match="not a usable path"):
        open_store(str(link), RealWorld())


def test_importing_the_store_imports_no_driver() -> None:
    """`import perdure.store.open` leaves apsw alone."""
    code = "import sys, perdure.store.open; sys.exit('apsw' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """With a file's name to try."""
    error = refusal(tmp_path)
    assert isinstance(error, UsageError)
    assert "perdure.db" in str(error)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """With the command that makes it; nothing is created."""
    error = refusal(tmp_path / "no" / "p.db")
    assert isinstance(error, UsageError)
    assert "mkdir -p" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_does_not_answer_is_no_mistake_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker waits for it instead of stopping (Y9)."""

    def stat(_path: Path) -> None:
        raise OSError(errno.EIO, "no answer")

    monkeypatch.setattr(Path, "stat", stat)
    assert isinstance(refusal(tmp_path / "p.db"), StoreUnavailable)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """What is not a regular file cannot be a store."""
    os.mkfifo(tmp_path / "p.db")
    assert isinstance(refusal(tmp_path / "p.db"), UsageError)


def test_an_unusable_name_is_refused(tmp_path: Path) -> None:
    """Too long for the file system."""
    assert isinstance(refusal(tmp_path / ("x" * 300)), UsageError)


@pytest.mark.parametrize("size", [10, 600, 9_000])
def test_a_file_that_is_no_database_is_refused(size: int, tmp_path: Path) -> None:
    """And stays as it was."""
    path = tmp_path / "p.db"
    path.write_bytes(b"not a database, just text. " * size)
    before = path.read_bytes()
    error = refusal(path)
    assert isinstance(error, UsageError)
    assert "not a SQLite database" in str(error)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """A file that was only touched."""
    path = tmp_path / "p.db"
    path.touch()

    async def scenario(store) -> None:
        assert (await store.create(new("r")))[1]

    run(path, scenario)


@pytest.mark.parametrize("owner", [0, 4711])
def test_another_applications_database_is_refused(owner: int, tmp_path: Path) -> None:
    """With and without an application id of its own; nothing is changed."""
    path = tmp_path / "p.db"
    db = apsw.Connection(str(path))
    db.execute(f"CREATE TABLE runs (id); PRAGMA application_id = {owner}")
    db.close()
    before = path.read_bytes()
    error = refusal(path)
    assert isinstance(error, UsageError)
    assert "another application" in str(error)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """StoreTooNew; nothing is changed."""
    path = tmp_path / "p.db"
    run(path, hold_one)
    _set_version(path, SCHEMA_VERSION + 1)
    error = refusal(path)
    assert isinstance(error, StoreTooNew)
    assert "Upgrade" in str(error)


def test_a_schema_without_its_tables_is_damaged(tmp_path: Path) -> None:
    """Ours by its id, but not whole."""
    path = tmp_path / "p.db"
    db = apsw.Connection(str(path))
    db.execute(f"CREATE TABLE runs (id); PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1")
    db.close()
    assert isinstance(refusal(path), StoreDamaged)


def test_a_cut_file_is_damaged(tmp_path: Path) -> None:
    """The second half is gone."""
    path = tmp_path / "p.db"
    run(path, hold_one)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    assert isinstance(refusal(path), StoreDamaged)


def test_a_page_of_garbage_is_found_when_opening(tmp_path: Path) -> None:
    """A small file is checked whole."""
    path = tmp_path / "p.db"
    run(path, hold_one)
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xa5" * 4096)
    assert isinstance(refusal(path), StoreDamaged)


def test_an_exclusive_lock_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program keeps the file; after a wait the answer says so."""
    monkeypatch.setattr("perdure.store.sqlite.engine.LOCK_WAIT_MS", 20)
    path = tmp_path / "p.db"
    run(path, hold_one)
    browser = apsw.Connection(str(path))
    browser.execute("PRAGMA journal_mode = delete")
    browser.execute("BEGIN EXCLUSIVE")
    error = refusal(path)
    browser.close()
    assert isinstance(error, StoreUnavailable)
    assert "locked" in str(error)


@pytest.mark.parametrize("target", ["file", "folder", "new"])
def test_a_read_only_place_is_reported(target: str) -> None:
    """The file, its folder, or a folder for a new file: what to change is named."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # reachable for another user, unlike tmp_path
    try:
        path = place / "p.db"
        if target != "new":
            run(path, hold_one)
            for file in place.iterdir():
                file.chmod(0o444 if target == "file" else 0o666)
        place.chmod(0o777 if target == "file" else 0o555)
        said = _as_nobody(path)
        assert said.startswith("StoreUnavailable")
        assert "read-only" in said
    finally:
        place.chmod(0o777)
        shutil.rmtree(place)


def test_a_full_disk_stops_a_worker_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared memory on a full disk can kill the process later."""
    monkeypatch.setattr("perdure.store.sqlite.paths.FREE_BYTES_MIN", 1 << 62)
    error = refusal(tmp_path / "p.db")
    assert isinstance(error, StoreUnavailable)
    assert "disk is full" in str(error)


def test_a_folder_that_could_not_be_synced_is_synced_by_the_next_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut takes the file's name, and all that was acknowledged with it (Y8)."""
    synced: list[str] = []

    def sync(path: str) -> None:
        synced.append(path)
        if len(synced) == 1:
            raise StoreUnavailable("the disk is away")

    monkeypatch.setattr(connection, "sync_folder", sync)
    path = tmp_path / "p.db"
    assert isinstance(refusal(path), StoreUnavailable)
    run(path, hold)
    assert synced == [str(path)] * 2


def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    """Before open and after close."""
    store = make(tmp_path / "p.db")

    async def attempt() -> None:
        with pytest.raises(UsageError, match="not open"):
            await store.run("r")
        await store.open(worker=False)
        await store.close()
        with pytest.raises(UsageError, match="not open"):
            await store.create(new("r"))
        await store.close()  # again: nothing

    asyncio.run(attempt())


def test_commits_are_durable(tmp_path: Path) -> None:
    """WAL and synchronous=FULL hold on every connection (D1)."""

    async def scenario(store) -> None:
        db = store._engine._connected(0)
        assert db.execute("PRAGMA synchronous").get == 2
        assert db.execute("PRAGMA journal_mode").get == "wal"
        assert db.execute("PRAGMA wal_autocheckpoint").get == 0

    run(tmp_path / "p.db", scenario)


def _as_nobody(path: Path) -> str:
    """What opening that path ends in, for a user without rights: root may write everywhere."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            error = refusal(path)
            os.write(sender, f"{type(error).__name__} {error}".encode())
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


async def hold_one(store) -> None:
    await hold(store)


def _set_version(path: Path, version: int) -> None:
    db = apsw.Connection(str(path))
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
