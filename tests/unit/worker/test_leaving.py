"""A worker that has to leave before its runs are done."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Perdure, agent, step
from perdure.base.world import RealWorld
from perdure.store.sqlite.store import SqliteStore

moments: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def nothing_has_happened() -> None:
    moments.update(started=asyncio.Event(), go=asyncio.Event())


@step(effect="once")
async def send() -> str:
    moments["started"].set()
    await moments["go"].wait()
    return "sent"


@step(effect="once")
async def send_for_ever() -> None:
    moments["started"].set()
    await asyncio.Event().wait()


@agent
async def sends() -> str:
    return await send()


@agent
async def never_ends() -> None:
    await send_for_ever()


class Gated(SqliteStore):
    """Its appends wait while the gate is shut."""

    def __init__(self, path: str) -> None:
        super().__init__(path, url=path, world=RealWorld())
        self.gate, self.waits = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def append(self, worker, writes):
        if not self.gate.is_set():
            self.waits.set()
        await self.gate.wait()
        return await super().append(worker, writes)


def test_a_result_that_waits_for_the_writer_is_written_before_it_leaves(tmp_path) -> None:
    """The effect has happened and the worker knows it: at its next start nobody needs to be asked."""
    path = str(tmp_path / "p.db")

    async def main() -> None:
        store = Gated(path)
        async with Perdure(path, store=store) as app:
            assert app.worker is not None
            handle = await app.start(sends)
            await moments["started"].wait()
            store.gate.clear()
            await app.start(never_ends)  # its first write keeps the writer busy
            await store.waits.wait()
            moments["go"].set()
            while next(iter(app.worker.running.values())).effects.running:  # nothing is told of this
                await asyncio.sleep(0)
            leaving = asyncio.create_task(app.worker.leave())
            await asyncio.sleep(0)
            store.gate.set()
            await leaving
        async with Perdure(path, worker=False) as client:
            (view,) = [entry for entry in await client.get(handle.id).history() if entry.name == "send"]
            assert (view.state, view.result) == ("executed", "sent")

    asyncio.run(main())


def test_what_still_runs_is_interrupted_and_its_rule_decides(tmp_path) -> None:
    """A `once` step that is cut short is in doubt for the next worker, without counting as a crash."""
    path = str(tmp_path / "p.db")

    async def main() -> None:
        async with Perdure(path, grace_s=0.0) as app:
            handle = await app.start(never_ends)
            await moments["started"].wait()
        async with Perdure(path, worker=False) as client:
            view = (await client.get(handle.id).status()).view
            assert (view.status, view.attempt) == ("queued", 1)
        async with Perdure(path) as app:
            while (view := (await app.get(handle.id).status()).view).status != "parked":
                await asyncio.sleep(0.002)
            assert view.reason == "in_doubt"

    asyncio.run(main())
