"""The WAL: prepared, recycled, bounded (D5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest
from tests.unit.store.support import add, hold, make, run

from perdure.base.records import Executed, encode_record
from perdure.store.contract import RunWrite
from perdure.store.sqlite import wal
from perdure.store.sqlite.db import PAGE_BYTES
from perdure.testing.conformance.kit import new

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.store.contract import RunRow
    from perdure.store.sqlite.store import SqliteStore


def size_of(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


def big() -> bytes:
    return encode_record(Executed(1.0, position=1, attempt=1, result=bytes(100_000)))


class Load:
    """Appends of about 100 KiB."""

    def __init__(self, store: SqliteStore, worker: int, held: RunRow) -> None:
        self.store, self.worker, self.held, self.next = store, worker, held, 1

    async def add(self, times: int, *, checkpoint: bool = True) -> None:
        for _ in range(times):
            write = RunWrite(self.held.num, 1, self.next, [big()])
            await self.store.append(self.worker, [write])
            self.next += 1
            if checkpoint:
                await self.store.checkpoint()


def test_a_worker_prepares_the_wal(tmp_path: Path) -> None:
    """Its blocks are there before the first commit; a client does not need them."""
    path = tmp_path / "p.db"

    async def as_worker(_store) -> None:
        assert size_of(path) >= wal.PREPARED_BYTES

    async def as_client(store) -> None:
        await store.create(new("r"))
        assert size_of(path) < 1_000_000

    run(path, as_worker, worker=True)
    run(path, as_client)


def test_preparing_keeps_what_is_in_the_wal(tmp_path: Path) -> None:
    """Another store has commits in it that are not in the file yet."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await add(store, worker, held, 1, 2)
        second = make(path)
        await second.open(worker=True)
        assert len(await second.journal(held.num)) == 2
        assert await add(store, worker, held, 3)
        assert len(await second.journal(held.num)) == 3
        assert await second.check() == []
        await second.close()

    run(path, scenario)


def test_the_wal_is_recycled(tmp_path: Path) -> None:
    """40 MB pass through; it stays near what was prepared."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        load = Load(store, *await hold(store))
        await load.add(400)
        assert size_of(path) <= wal.PREPARED_BYTES + 1_000_000

    run(path, scenario, worker=True)


def test_a_store_whose_owner_never_checkpoints_is_bounded(tmp_path: Path) -> None:
    """A client that only writes does it by itself."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        load = Load(store, *await hold(store))
        await load.add(400, checkpoint=False)
        assert size_of(path) <= 4 * wal.CHECKPOINT_BYTES

    run(path, scenario)


def test_the_wal_shrinks_after_a_long_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows while a reader needs it, with few attempts; then it starts over and is cut."""
    monkeypatch.setattr(wal, "FORCED_WAIT_MS", 1)
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        load = Load(store, *await hold(store))
        moves: list[int] = []
        plain = store._engine.wal._move
        monkeypatch.setattr(store._engine.wal, "_move", lambda db, mode: (moves.append(mode), plain(db, mode)))
        reader = apsw.Connection(str(path))
        reader.execute("BEGIN; SELECT count(*) FROM runs")
        await load.add(300)
        assert size_of(path) > 25_000_000
        assert 3 < len(moves) < 20
        reader.execute("COMMIT")
        reader.close()
        await load.add(200)
        assert store._engine.wal.pages * PAGE_BYTES < 2 * wal.CHECKPOINT_BYTES
        assert size_of(path) <= 17_000_000
        assert await store.check() == []

    run(path, scenario)


def test_a_short_wal_is_left_alone(tmp_path: Path) -> None:
    """Housekeeping costs nothing when there is nothing to do."""

    async def scenario(store) -> None:
        load = Load(store, *await hold(store))
        await load.add(3)
        before = store._engine.wal.pages
        await store.checkpoint()
        assert store._engine.wal.pages == before > 0

    run(tmp_path / "p.db", scenario)


def test_a_closed_store_is_one_file(tmp_path: Path) -> None:
    """So that copying it, or putting a backup in its place, is safe."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        await Load(store, *await hold(store)).add(5)

    run(path, scenario, worker=True)
    assert [file.name for file in tmp_path.iterdir()] == ["p.db"]
