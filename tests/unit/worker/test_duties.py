"""A worker's loops when something is in the way: the store is away, the lease is lost, the worker is stopping."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure, RunCancelled, agent, step
from perdure.base import faults
from perdure.base.world import RealWorld
from perdure.errors import StoreUnavailable
from perdure.store.open import open_store
from perdure.worker.threads import ThreadPool

did: list[str] = []
gate = threading.Event()
waits = {"first": threading.Event(), "second": threading.Event()}


class Clock(RealWorld):
    """The monotonic clock can be put ahead."""

    ahead_s = 0.0

    def monotonic(self) -> float:  # type: ignore[override]  # RealWorld's is the function itself
        return super().monotonic() + self.ahead_s


@pytest.fixture(autouse=True)
def nothing_done() -> Any:
    did.clear()
    for held in (gate, *waits.values()):
        held.clear()
    yield
    faults.arm("")


@step(effect="once")
def work_slowly(what: str) -> str:
    did.append(what)
    gate.wait(20)
    return what


@agent
async def duties_slow(what: str) -> str:
    return await work_slowly(what)


def within(seconds: float, work: Any) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(work, seconds)

    return asyncio.run(limited())


def test_a_worker_that_cannot_come_back_at_once_keeps_all_its_loops(tmp_path: Path) -> None:
    """It was buried, and the store is away when it signs on again: it signs on later, and goes on renewing its lease."""

    async def main() -> None:
        async with Perdure(str(tmp_path / "p.db"), lease_ttl_s=0.4) as app:
            assert app.worker is not None
            store, number = app.worker.store, app.worker.number
            faults.arm("register.before_begin:nth=1:error")
            await store.bury(number, dead=True)
            while app.worker.number == number:
                await asyncio.sleep(0.002)
            (first,) = await store.workers()
            while (await store.workers())[0].lease_until == first.lease_until:
                await asyncio.sleep(0.002)

    within(20, main())


def test_a_worker_that_stops_takes_up_nothing_new(tmp_path: Path) -> None:
    """Stopped while a claim is under way: what it brings is handed back as it is."""
    path = str(tmp_path / "p.db")

    async def main() -> None:
        store: Any = open_store(path, RealWorld())
        claim, claimed, go_on = store.claim, asyncio.Event(), asyncio.Event()

        async def claim_slowly(*args: Any, **options: Any) -> Any:
            taken = await claim(*args, **options)
            if taken:
                claimed.set()
                await go_on.wait()
            return taken

        store.claim = claim_slowly
        app = Perdure(path, store=store)
        await app.__aenter__()
        await app.start(duties_slow, "first")
        while not did:
            await asyncio.sleep(0.002)
        async with Perdure(path, worker=False) as client:
            await client.start(duties_slow, "second", id="r")
            await claimed.wait()
            assert app.worker is not None
            attending = app.worker._tasks[1]
            stopping = asyncio.create_task(app.close())
            await asyncio.sleep(0)
            go_on.set()
            await attending
            gate.set()
            await stopping
            assert await client.get("r").status() == "queued"
        assert did == ["first"]

    within(20, main())


def test_the_lease_is_kept_while_a_worker_stops(tmp_path: Path) -> None:
    """The grace time may be longer than a lease: what is finished within it is recorded, and done by nobody else."""
    path = str(tmp_path / "p.db")

    async def main() -> None:
        async with Perdure(path, lease_ttl_s=0.3) as first, Perdure(path, lease_ttl_s=5) as second:
            handle = await first.start(duties_slow, "slow")
            while not did:
                await asyncio.sleep(0.002)
            assert first.worker is not None
            assert second.worker is not None
            number, later = first.worker.number, first.world.now() + 1.5
            stopping = asyncio.create_task(first.close())
            held = {worker.num: worker for worker in await second.worker.store.workers()}
            while held[number].lease_until < later:
                held = {worker.num: worker for worker in await second.worker.store.workers()}
                await asyncio.sleep(0.002)
            gate.set()
            await stopping
            assert await second.get(handle.id).result() == "slow"
            assert did == ["slow"]

    within(20, main())


def test_a_worker_ends_although_its_last_write_fails(tmp_path: Path) -> None:
    """The store goes away during the last commit: the worker leaves all the same."""

    async def main() -> None:
        app = Perdure(str(tmp_path / "p.db"))
        await app.__aenter__()
        assert app.worker is not None
        store: Any = app.worker.store
        writing, fail = asyncio.Event(), asyncio.Event()

        async def append(worker: int, writes: Any) -> Any:
            del worker, writes
            writing.set()
            await fail.wait()
            raise StoreUnavailable("the store is away")

        store.append = append
        await app.start(duties_slow, "slow")
        await writing.wait()
        closing = asyncio.create_task(app.close(grace_s=0))
        while not app.worker._writer._closing:
            await asyncio.sleep(0)
        fail.set()
        await closing

    within(20, main())


def test_a_client_waits_on_when_it_cannot_look_for_a_moment(tmp_path: Path) -> None:
    """The store cannot be read once while a client waits for a result: it gets the result all the same."""
    path = str(tmp_path / "p.db")

    async def main() -> None:
        async with Perdure(path, worker=False) as client, Perdure(path) as app:
            handle = await app.start(duties_slow, "slow")
            waiting = asyncio.create_task(client.get(handle.id).result())
            store: Any = client._open_store()
            looked, changed = asyncio.Event(), store.changed

            async def fail_once() -> bool:
                store.changed = changed
                looked.set()
                raise StoreUnavailable("the store is away")

            store.changed = fail_once
            await app.start(duties_slow, "other")
            await looked.wait()
            gate.set()
            assert await waiting == "slow"

    within(20, main())


@step(effect="once", timeout=0.4)
def work_a_while(what: str) -> str:
    did.append(what)
    waits[what].wait(20)
    return what


@agent
async def duties_queue() -> list[str]:
    return await asyncio.gather(work_a_while("first"), work_a_while("second"))


def test_a_steps_time_begins_when_a_thread_takes_it(tmp_path: Path) -> None:
    """With one thread the second step queues for most of its timeout. What it may take counts from its first line."""
    clock = Clock()

    async def main() -> None:
        async with Perdure(str(tmp_path / "p.db"), world=clock) as app:
            assert app.worker is not None
            app.worker._services.threads = ThreadPool(1)
            handle = await app.start(duties_queue)
            while did != ["first"]:
                await asyncio.sleep(0.002)
            clock.ahead_s += 0.3
            waits["first"].set()
            while did != ["first", "second"]:
                await asyncio.sleep(0.002)
            clock.ahead_s += 0.3
            app.worker._deadlines._ring()
            waits["second"].set()
            assert await handle.result() == ["first", "second"]

    within(20, main())


def test_a_step_that_is_cancelled_in_the_queue_for_a_thread_is_not_in_doubt(tmp_path: Path) -> None:
    """Its start is on record, but no thread has taken it: it certainly did not happen."""

    async def main() -> None:
        async with Perdure(str(tmp_path / "p.db")) as app:
            assert app.worker is not None
            app.worker._services.threads = ThreadPool(1)
            handle = await app.start(duties_queue)
            while did != ["first"] or not app.worker._services.threads.backlog:
                await asyncio.sleep(0.002)
            await handle.cancel()
            waits["first"].set()
            with pytest.raises(RunCancelled):
                await handle.result()
            assert did == ["first"]

    within(20, main())
