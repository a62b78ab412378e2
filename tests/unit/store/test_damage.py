"""A flipped byte is found and named; other runs go on (S1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest
from tests.unit.store.support import add, hold, run

from perdure.base.status import ControlKind, Status
from perdure.errors import StoreDamaged
from perdure.store.contract import RunChange, RunWrite, Where
from perdure.testing.conformance.kit import begun, ended, executed

if TYPE_CHECKING:
    from pathlib import Path


def change(path: Path, sql: str, *values: object) -> None:
    """What a bad disk or a stranger does."""
    db = apsw.Connection(str(path))
    db.execute(sql, values)
    db.close()


async def fill(store) -> None:
    """Runs r and other, ready, with ten records each."""
    for name in ("r", "other"):
        worker, held = await hold(store, name)
        await add(store, worker, held, *range(1, 11))
        await store.retire(worker)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE journal SET body = zeroblob(length(body)) WHERE run = 1 AND seq = 4", "record 4 does not match"),
        ("UPDATE journal SET sum = sum + 1 WHERE run = 1 AND seq = 10", "record 10 does not match"),
        ("DELETE FROM journal WHERE run = 1 AND seq = 7", "record 7 is missing"),
        ("UPDATE journal SET seq = 40 WHERE run = 1 AND seq = 1", "record 1 is missing"),
    ],
)
def test_a_damaged_record_is_named(sql: str, words: str, tmp_path: Path) -> None:
    """With run and number, when the journal is read and by `check`; the other run is fine."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, sql)

    async def scenario(store) -> None:
        with pytest.raises(StoreDamaged, match=r"run 'r'") as caught:
            await store.journal(1)
        assert words in str(caught.value)
        assert any(words in finding for finding in await store.check())
        assert len(await store.journal(2)) == 10

    run(path, scenario)


def test_two_records_that_change_places_are_found(tmp_path: Path) -> None:
    """The checksum covers run and number too."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, "UPDATE journal SET seq = 100 WHERE run = 1 AND seq = 3")
    change(path, "UPDATE journal SET seq = 3 WHERE run = 1 AND seq = 4")
    change(path, "UPDATE journal SET seq = 4 WHERE run = 1 AND seq = 100")

    async def scenario(store) -> None:
        with pytest.raises(StoreDamaged, match="record 3 "):
            await store.journal(1)

    run(path, scenario)


def test_any_flipped_byte_of_a_record_is_found(tmp_path: Path) -> None:
    """Each byte of a body, one after the other."""
    path = tmp_path / "p.db"
    run(path, fill)
    whole = executed(5)

    async def scenario(store) -> None:
        db = store._engine._connected(0)
        for n in range(len(whole)):
            flipped = whole[:n] + bytes([whole[n] ^ 0x10]) + whole[n + 1 :]
            db.execute("UPDATE journal SET body = ? WHERE run = 1 AND seq = 5", (flipped,))
            with pytest.raises(StoreDamaged, match="record 5 "):
                await store.journal(1)
        db.execute("UPDATE journal SET body = ? WHERE run = 1 AND seq = 5", (whole,))
        assert len(await store.journal(1)) == 10

    run(path, scenario)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE runs SET input = x'00' WHERE id = 'r'",
        "UPDATE runs SET input = NULL WHERE id = 'r'",
        "UPDATE runs SET tags = '{' WHERE id = 'r'",
        "UPDATE runs SET progress = x'ff' WHERE id = 'r'",
        "UPDATE runs SET result = x'01' WHERE id = 'r'",
        "UPDATE runs SET error = x'01' WHERE id = 'r'",
    ],
)
def test_a_damaged_run_is_parked_and_others_go_on(sql: str, tmp_path: Path) -> None:
    """Reading it raises; a claim parks it for `store` and takes the other; a listing shows both."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, sql)

    async def scenario(store) -> None:
        with pytest.raises(StoreDamaged, match="run 'r'"):
            await store.run("r")
        assert any("run 'r'" in finding for finding in await store.check())
        rows = await store.runs(Where(), limit=10)
        assert [(row.id, row.reason) for row in rows] == [("other", None), ("r", "store")]
        worker, _ = await hold(store, "mine")
        assert [taken.run.id for taken in await store.claim(worker, ["a"], limit=10, only=None)] == ["other"]
        assert await store.claim(worker, ["a"], limit=10) == []
        with pytest.raises(StoreDamaged, match="run 'r'"):
            await store.control("r", ControlKind.RESUME, body=b"", by="me")

    run(path, scenario)


def test_an_unknown_status_is_damage(tmp_path: Path) -> None:
    """Not a crash of the reader."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, "UPDATE runs SET status = 'odd' WHERE id = 'r'")

    async def scenario(store) -> None:
        with pytest.raises(StoreDamaged, match="run 'r'"):
            await store.run("r")

    run(path, scenario)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM runs WHERE id = 'r'", "no such run"),
        ("UPDATE runs SET worker = 99 WHERE id = 'r'", "held by a worker that does not exist"),
        ("UPDATE runs SET status = 'completed' WHERE id = 'r'", "ended and is ready"),
        ("INSERT INTO controls (run, kind, body, \"by\", at) VALUES (99, 'pause', x'', '', 1)", "no such run"),
        ("UPDATE journal SET body = x'9163', sum = 0 WHERE run = 1 AND seq = 2", "record 2"),
    ],
)
def test_tables_that_contradict_each_other_are_found(sql: str, words: str, tmp_path: Path) -> None:
    """`check` says what is wrong in plain words."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, sql)

    async def scenario(store) -> None:
        assert any(words in finding for finding in await store.check())

    run(path, scenario)


def test_a_sound_store_has_no_findings(tmp_path: Path) -> None:
    """With ended runs, long inputs and requests in it."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        change = RunChange(Status.COMPLETED, result=b"x", release=True)
        await store.append(worker, [RunWrite(held.num, 1, 1, [begun(), ended()], change)])
        await hold(store, "held")
        await store.control("held", ControlKind.PAUSE, body=b"", by="me")
        assert await store.check() == []

    run(tmp_path / "p.db", scenario)


def test_flipped_bytes_of_the_file_never_pass_for_data(tmp_path: Path) -> None:
    """Each journal either reads as it was written or raises StoreDamaged; nothing else is raised."""
    path = tmp_path / "p.db"
    run(path, fill)
    whole = path.read_bytes()
    good = [executed(n) for n in range(1, 11)]

    async def scenario(store) -> None:
        for num in (1, 2):
            try:
                found = await store.journal(num)
            except StoreDamaged:
                continue
            assert found == good[: len(found)]
            if len(found) < len(good):
                assert await store.check() != []

    for at in range(100, len(whole), 997):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            run(path, scenario)
        except StoreDamaged:
            continue
