"""How records lie in the journal's rows: nobody who reads notices where one row ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.store.support import add, hold, make, run

from perdure.store.contract import RunWrite, Verdict
from perdure.store.sqlite import journal
from perdure.testing.conformance.kit import executed, new

if TYPE_CHECKING:
    from pathlib import Path


def rows(store) -> list[tuple[int, int]]:
    """First number and count of each row of run 1."""
    return store._engine._connected(0).execute("SELECT seq, count FROM journal WHERE run = 1 ORDER BY seq").fetchall()


def test_a_row_grows_until_it_is_long(tmp_path: Path) -> None:
    """Then the next one begins; every record is in exactly one."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        for number in range(1, 101):
            assert await add(store, worker, held, number) is Verdict.DONE
        lengths = [count for _, count in rows(store)]
        assert sum(lengths) == 100
        assert 1 < len(lengths) < 25
        assert [seq for seq, _ in rows(store)] == [1 + sum(lengths[:n]) for n in range(len(lengths))]
        assert await store.check() == []

    run(tmp_path / "p.db", scenario)


def test_a_long_record_has_a_row_of_its_own(tmp_path: Path) -> None:
    """It is written once, and nothing is written behind it."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        long = b"\\x91" + bytes(journal.ROW_BYTES)
        for seq in (1, 2, 3):
            await store.append(worker, [RunWrite(held.num, held.epoch, seq, [long])])
        assert rows(store) == [(1, 1), (2, 1), (3, 1)]
        assert await store.journal(1) == [long] * 3

    run(tmp_path / "p.db", scenario)


def test_reading_may_begin_anywhere(tmp_path: Path) -> None:
    """Also in the middle of a row, and behind the last one."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        whole = [executed(number) for number in range(1, 61)]
        for number in range(1, 61, 3):
            await add(store, worker, held, number, number + 1, number + 2)
        for after in range(62):
            assert await store.journal(1, after=after) == whole[after:]

    run(tmp_path / "p.db", scenario)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a batch"])
def test_when_another_process_has_written_a_new_row_begins(together: bool, tmp_path: Path) -> None:  # a case
    """What this connection knows of a row may be old then; the records are the same."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        worker, held = await hold(store)
        runs = [held, (await store.create(new("other"), worker=worker))[0].run] if together else [held]
        stranger = make(path)
        await stranger.open(worker=False)
        for number in range(1, 9):
            writes = [RunWrite(row.num, row.epoch, number, [executed(number)]) for row in runs]
            assert set((await store.append(worker, writes)).verdicts) == {Verdict.DONE}
            if number == 4:
                await stranger.create(new("strange"))
        await stranger.close()
        assert rows(store) == [(1, 4), (5, 4)]
        assert await store.journal(1) == [executed(number) for number in range(1, 9)]

    run(path, scenario)


def test_a_row_that_was_rolled_back_is_forgotten(tmp_path: Path) -> None:
    """What follows a refused write is written from what the store holds."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await add(store, worker, held, 1)
        refused = RunWrite(held.num, held.epoch, 2, [executed(2), "no bytes"])  # type: ignore[list-item]  # the fault
        assert (await store.append(worker, [refused])).verdicts == [Verdict.CONFLICT]
        assert await add(store, worker, held, 2, 3) is Verdict.DONE
        assert await store.journal(1) == [executed(number) for number in (1, 2, 3)]

    run(tmp_path / "p.db", scenario)


def test_a_new_epoch_begins_a_new_row(tmp_path: Path) -> None:
    """Who wrote a record can be told: a row has one writer."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await add(store, worker, held, 1, 2)
        await store.retire(worker)
        second, _ = await hold(store, "another")
        (taken,) = await store.claim(second, [held.agent], limit=5)
        assert taken.run.epoch == held.epoch + 1
        assert await add(store, second, taken.run, 3) is Verdict.DONE
        assert rows(store) == [(1, 2), (3, 1)]

    run(tmp_path / "p.db", scenario)
