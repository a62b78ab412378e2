"""Requests that come at an awkward moment: while a run is leaving memory, beside another request, or for a step that is
not where the person thinks it is. None is lost, and none does more than it says."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.fundamentals.conftest import until

from perdure import agent, step

did: list[Any] = []
gate = threading.Event()
bell: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    did.clear()
    gate.clear()
    bell.clear()


@step
async def work(what: str) -> str:
    did.append(what)
    if what in bell:
        await bell[what].wait()
    return what


async def done(*what: str) -> None:
    while not all(item in did for item in what):
        await asyncio.sleep(0.002)


class HeldWrites:
    """The store's `append`, which waits while it is held."""

    def __init__(self, store: Any) -> None:
        self._append = store.append
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = 0
        store.append = self

    async def __call__(self, worker: int, writes: Any) -> Any:
        self.waiting += 1
        await self.open.wait()
        self.waiting -= 1
        return await self._append(worker, writes)


@agent
async def awkward_sleeper() -> None:
    await work("first")
    try:
        await asyncio.sleep(86_400)
    finally:
        await work("cleanup")


@agent
async def awkward_other() -> str:
    return await work("other")


def test_a_cancel_that_meets_a_run_about_to_leave_wakes_it(durably: Any) -> None:
    """The run has decided to leave memory for a day, and waits for its turn to write that: the request is not consumed by
    that write."""

    async def main(app: Any) -> None:
        bell["first"] = asyncio.Event()
        handle = await app.start(awkward_sleeper)
        await done("first")
        writes = HeldWrites(app.worker.store)
        writes.open.clear()
        other = await app.start(awkward_other)
        while not writes.waiting:
            await asyncio.sleep(0.002)
        bell["first"].set()
        (sleeper,) = (run for run in app.worker.running.values() if run.id == handle.id)
        while sleeper.outbox.change is None:
            await asyncio.sleep(0.002)
        await handle.cancel()
        writes.open.set()
        await until(handle, "cancelled")
        assert did == ["first", "other", "cleanup"]
        assert await other.result() == "other"

    durably(main)
