"""Transactions: once or not at all, on the loop or on the thread (D3, D4; design 1.6.17)."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.unit.store.support import add, hold, make, run

from perdure.base import faults, limits
from perdure.base.status import ControlKind, Status
from perdure.errors import LeaseLost, StoreDamaged, StoreUnavailable, UsageError
from perdure.store.contract import Pulse, RunChange, RunWrite, Verdict, Where
from perdure.store.sqlite import engine
from perdure.testing.conformance.kit import StillWorld, executed, new, who


class Browser:
    """Another program that holds the write lock until it is told to let go."""

    def __init__(self, path: Path) -> None:
        self.db = apsw.Connection(str(path))
        self.db.execute("BEGIN IMMEDIATE")

    def let_go(self) -> None:
        self.db.execute("ROLLBACK")
        self.db.close()


def test_a_busy_store_is_waited_for_off_the_loop(tmp_path: Path) -> None:
    """The loop runs on; the write is done once the other program lets go."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        worker, held = await hold(store)
        browser = Browser(path)
        write = asyncio.ensure_future(add(store, worker, held, 1))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not write.done()
        browser.let_go()
        assert await write is Verdict.DONE
        assert await store.journal(held.num) == [executed(1)]

    run(path, scenario)


def test_a_store_that_stays_locked_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the wait; nothing was written, and the next attempt works."""
    monkeypatch.setattr(engine, "LOCK_WAIT_MS", 10)
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        worker, held = await hold(store)
        browser = Browser(path)
        with pytest.raises(StoreUnavailable, match="locked"):
            await add(store, worker, held, 1)
        assert store._engine._db is None  # the lock might be our own
        assert await store.journal(held.num) == []  # reading needs no lock
        browser.let_go()
        assert await add(store, worker, held, 1) is Verdict.DONE

    run(path, scenario)


def test_a_verb_waits_for_one_whose_caller_left(tmp_path: Path) -> None:
    """The connection is never used by two threads at once (D4)."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        worker, held = await hold(store)
        browser = Browser(path)
        left = asyncio.ensure_future(add(store, worker, held, 1))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        following = asyncio.ensure_future(add(store, worker, held, 1, 2))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not following.done()
        browser.let_go()
        assert await following is Verdict.DONE
        assert await store.journal(held.num) == [executed(1), executed(2)]

    run(path, scenario)


def test_many_verbs_at_once_keep_off_each_other(tmp_path: Path) -> None:
    """Also while all of them go through the thread."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        browser = Browser(path)
        verbs = [asyncio.ensure_future(store.create(new(f"r{n}"))) for n in range(30)]
        await asyncio.sleep(0)
        browser.let_go()
        assert all(added for _, added in await asyncio.gather(*verbs))
        assert len(await store.runs(Where(), limit=100)) == 30

    run(path, scenario)


def test_a_claim_whose_caller_left_is_brought_by_the_next(tmp_path: Path) -> None:
    """What it took is not lost in a worker that does not know."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        worker = await store.register(who("w"), ttl_s=30)
        await store.create(new("r"))
        browser = Browser(path)
        left = asyncio.ensure_future(store.claim(worker, ["a"], limit=5))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        browser.let_go()
        (taken,) = await store.claim(worker, ["a"], limit=5)
        assert (taken.run.id, taken.run.epoch) == ("r", 1)
        assert await store.claim(worker, ["a"], limit=5) == []

    run(path, scenario)


class SlowWorld(StillWorld):
    """Each look at the clock takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.step_s = 0.0
        self.threads: set[int] = set()

    def monotonic(self) -> float:
        self.time += self.step_s
        self.threads.add(threading.get_ident())
        return self.time


def test_slow_commits_move_to_the_thread_and_come_back(tmp_path: Path) -> None:
    """Past the limit the loop is spared; one in a hundred is tried inline, and when it is fast all are."""
    world = SlowWorld()
    here = threading.get_ident()

    async def where(store, n: int) -> list[bool]:
        """For n writes: was each inline?"""
        seen: list[bool] = []
        for _ in range(n):
            world.threads.clear()
            await store.renew(1, ttl_s=1e9)
            seen.append(world.threads == {here})
        return seen

    async def scenario(store) -> None:
        await store.register(who("w"), ttl_s=1e9)
        assert all(await where(store, 10))
        world.step_s = limits.inline_commit_s_max * 5
        await where(store, 20)
        seen = await where(store, 2 * engine.INLINE_TRIAL_EVERY)
        assert seen.count(True) == 2
        world.step_s = 0.0
        back = await where(store, 2 * engine.INLINE_TRIAL_EVERY)
        assert all(back[back.index(True) :])

    run(tmp_path / "p.db", scenario, world=world)


def test_one_value_that_cannot_be_stored_is_one_runs_matter(tmp_path: Path) -> None:
    """CONFLICT for it, whole; the others of the batch are written (design 1.6.8)."""

    async def scenario(store) -> None:
        worker, first = await hold(store, "r1")
        runs = [first] + [(await store.create(new(f"r{n}"), worker=worker))[0].run for n in (2, 3)]
        bad = RunChange(Status.WAITING, waiting_on="\ud800")
        writes = [RunWrite(held.num, 1, 1, [executed(1)]) for held in runs]
        writes[1].change = bad
        appended = await store.append(worker, writes)
        assert appended.verdicts == [Verdict.DONE, Verdict.CONFLICT, Verdict.DONE]
        assert [len(await store.journal(held.num)) for held in runs] == [1, 0, 1]
        alone = RunWrite(runs[1].num, 1, 1, [executed(1)], pulses=[Pulse(1 << 70, None)])
        assert (await store.append(worker, [alone])).verdicts == [Verdict.CONFLICT]
        assert await store.journal(runs[1].num) == []
        assert await add(store, worker, runs[1], 1) is Verdict.DONE

    run(tmp_path / "p.db", scenario)


def test_the_same_run_twice_in_a_batch_builds_on_itself(tmp_path: Path) -> None:
    """The second write finds what the first wrote; a wrong one is refused alone."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        writes = [RunWrite(held.num, 1, seq, [executed(seq)]) for seq in (1, 2, 2, 5, 3)]
        verdicts = (await store.append(worker, writes)).verdicts
        assert verdicts == [Verdict.DONE, Verdict.DONE, Verdict.DONE, Verdict.CONFLICT, Verdict.DONE]
        assert len(await store.journal(held.num)) == 3

    run(tmp_path / "p.db", scenario)


@pytest.mark.parametrize("id", ["\ud800", "a\udfff"])
def test_a_text_that_is_no_unicode_is_the_callers_mistake(id: str, tmp_path: Path) -> None:
    """UsageError, and the store goes on."""

    async def scenario(store) -> None:
        with pytest.raises(UsageError):
            await store.create(new(id))
        with pytest.raises(UsageError):
            await store.run(id)
        assert (await store.create(new("r")))[1]

    run(tmp_path / "p.db", scenario)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """StoreUnavailable while it is full; nothing is half written; it goes on when there is space (Y9)."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await add(store, worker, held, 1)
        db = store._engine._connected(0)
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').get}")
        big = RunWrite(held.num, 1, 2, [executed(2), executed(3) + bytes(100_000)])
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await store.append(worker, [big])
        assert await store.journal(held.num) == [executed(1)]
        assert await add(store, worker, held, 2, 3) is Verdict.DONE  # a new connection without that limit

    run(tmp_path / "p.db", scenario)


@pytest.mark.parametrize("point", ["before_begin", "after_begin", "before_commit"])
def test_an_error_before_commit_writes_nothing(point: str, tmp_path: Path) -> None:
    """The verb raises, the same verb again succeeds, once."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        faults.arm(f"append.{point}:nth=1:error")
        with pytest.raises(StoreUnavailable):
            await add(store, worker, held, 1)
        assert await store.journal(held.num) == []
        assert await add(store, worker, held, 1) is Verdict.DONE
        assert await store.journal(held.num) == [executed(1)]

    run(tmp_path / "p.db", scenario)


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError, apsw.BusyError])
def test_housekeeping_that_fails_after_a_commit_fails_no_verb(
    error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was written: an error would say that it was not, and a second attempt would write it twice (D3)."""

    def move(_db: object) -> None:
        raise error

    async def scenario(store) -> None:
        worker, held = await hold(store)
        monkeypatch.setattr(store._engine.wal, "move", move)
        monkeypatch.setattr(store._engine.wal, "overdue_at", -1)
        await store.control(held.id, ControlKind.CANCEL, body=b"", by="me")
        monkeypatch.undo()
        assert len(await store.controls(worker, after=0)) == 1
        assert await add(store, worker, held, 1) is Verdict.DONE

    run(tmp_path / "p.db", scenario)


@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_another_file_under_the_name_ends_the_use(what: str, tmp_path: Path) -> None:
    """The next poll says so; nothing is written under numbers that mean others there (D6)."""
    path, other = tmp_path / "p.db", tmp_path / "q.db"
    run(other, hold)

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await store.changed()
        path.unlink() if what == "deleted" else other.replace(path)
        with pytest.raises(StoreDamaged, match="while it was in use"):
            await store.changed()
        with pytest.raises(StoreDamaged, match="while it was in use"):
            await add(store, worker, held, 1)
        assert path.exists() == (what == "replaced")

    run(path, scenario)


def test_a_deleted_log_is_replaced_before_more_is_written(tmp_path: Path) -> None:
    """What it holds is saved into the file by the next poll: a kill loses nothing, and others can look (D6)."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await add(store, worker, held, 1)
        Path(f"{path}-wal").unlink()
        assert await store.changed()
        assert await add(store, worker, held, 2) is Verdict.DONE
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", tmp_path / f"copy.db{suffix}")
        copied: list[bytes] = []

        async def look(copy) -> None:
            copied.extend(await copy.journal(held.num))

        await asyncio.to_thread(run, tmp_path / "copy.db", look)
        assert copied == [executed(1), executed(2)]

    run(path, scenario)


def test_an_unknown_commit_is_resolved_by_writing_again(tmp_path: Path) -> None:
    """The commit happened, its answer was lost: the same append is DONE and stored once."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await add(store, worker, held, 1)
        faults.arm("append.after_commit:nth=1:error")
        with pytest.raises(StoreUnavailable):
            await add(store, worker, held, 2, 3)
        assert await add(store, worker, held, 2, 3) is Verdict.DONE
        assert await store.journal(held.num) == [executed(1), executed(2), executed(3)]
        assert await add(store, worker, held, 4) is Verdict.DONE

    run(tmp_path / "p.db", scenario)


def test_an_unknown_claim_is_brought_by_the_next(tmp_path: Path) -> None:
    """Each run exactly once, also if the next one fails in the same way."""

    async def scenario(store) -> None:
        worker = await store.register(who("w"), ttl_s=30)
        for n in range(3):
            await store.create(new(f"r{n}"))
        faults.arm("claim.after_commit:error")
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.claim(worker, ["a"], limit=2)
        faults.arm("")
        taken = [claimed for _ in range(3) for claimed in await store.claim(worker, ["a"], limit=2)]
        assert sorted((claimed.run.id, claimed.run.epoch) for claimed in taken) == [("r0", 1), ("r1", 1), ("r2", 1)]

    run(tmp_path / "p.db", scenario)


def test_an_unknown_start_is_brought_by_the_next_claim(tmp_path: Path) -> None:
    """A run created and taken in a commit whose answer was lost is not stranded."""

    async def scenario(store) -> None:
        worker = await store.register(who("w"), ttl_s=30)
        faults.arm("create.after_commit:nth=1:error")
        with pytest.raises(StoreUnavailable):
            await store.create(new("r"), worker=worker)
        assert not (await store.create(new("r"), worker=worker))[1]
        assert [taken.run.id for taken in await store.claim(worker, ["a"], limit=5)] == ["r"]

    run(tmp_path / "p.db", scenario)


def test_what_is_known_is_forgotten_when_a_run_is_taken_away(tmp_path: Path) -> None:
    """By this store itself, by another, and by a request (L1)."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        far = make(path)
        await far.open(worker=False)
        worker, held = await hold(store)
        assert await add(store, worker, held, 1) is Verdict.DONE
        await far.control("r", ControlKind.CANCEL, body=b"", by="me")
        guarded = RunWrite(held.num, 1, 2, [executed(2)], unless_control=0)
        assert (await store.append(worker, [guarded])).verdicts == [Verdict.CONTROL]
        assert await add(store, worker, held, 2) is Verdict.DONE
        await far.bury(worker, dead=True)
        with pytest.raises(LeaseLost):
            await add(store, worker, held, 3)
        worker, held = await hold(store, "again")
        assert await add(store, worker, held, 1) is Verdict.DONE
        await store.bury(worker, dead=True)
        with pytest.raises(LeaseLost):
            await add(store, worker, held, 2)
        await far.close()

    run(path, scenario)


def test_two_workers_of_one_store_do_not_share_what_is_known(tmp_path: Path) -> None:
    """The facts are one worker's: another one is fenced."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        other = await store.register(who("other"), ttl_s=30)
        for n in range(1, 4):
            assert await add(store, worker, held, n) is Verdict.DONE
            assert await add(store, other, held, n + 1) is Verdict.FENCED

    run(tmp_path / "p.db", scenario)


def test_a_failed_batch_leaves_nothing_known(tmp_path: Path) -> None:
    """Numbers that were rolled back are free again."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await add(store, worker, held, 1)
        for _ in range(3):
            faults.arm("append.before_commit:nth=1:error")
            with pytest.raises(StoreUnavailable):
                await add(store, worker, held, 2)
        assert await add(store, worker, held, 3) is Verdict.CONFLICT
        assert await add(store, worker, held, 2) is Verdict.DONE

    run(tmp_path / "p.db", scenario)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (apsw.IOError("disk I/O error"), StoreUnavailable),
        (apsw.FullError("full"), StoreUnavailable),
        (apsw.ReadOnlyError("readonly"), StoreUnavailable),
        (apsw.CantOpenError("cannot open"), StoreUnavailable),
        (apsw.CorruptError("malformed"), StoreDamaged),
        (apsw.NotADBError("not a db"), StoreDamaged),
    ],
)
def test_an_error_drops_the_connection(error: Any, kind: type[Exception], tmp_path: Path) -> None:
    """It gets its typed meaning; the next verb opens a new connection and works."""

    async def scenario(store) -> None:
        await store.create(new("r"))
        first = store._engine._db

        def fail(_db: object) -> None:
            raise error

        with pytest.raises(kind):
            await store._engine.read(fail)
        assert (await store.run("r")).id == "r"
        assert store._engine._db is not first

    run(tmp_path / "p.db", scenario)
