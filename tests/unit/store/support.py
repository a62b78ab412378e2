"""What the tests of the SQLite store share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from perdure.base import faults
from perdure.store.contract import RunRow, RunWrite, Verdict
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.conformance.kit import StillWorld, executed, new, who

Scenario = Callable[[SqliteStore], Coroutine[Any, Any, None]]


def make(path: Path, world: StillWorld | None = None) -> SqliteStore:
    return SqliteStore(str(path), url=str(path), world=world or StillWorld())


def run(path: Path, scenario: Scenario, *, worker: bool = False, world: StillWorld | None = None) -> None:
    """Open a store, let the scenario use it, close it; no fault stays armed."""

    async def whole() -> None:
        store = make(path, world)
        await store.open(worker=worker)
        try:
            await scenario(store)
        finally:
            faults.arm("")
            await store.close()

    asyncio.run(whole())


async def hold(store: SqliteStore, id: str = "r") -> tuple[int, RunRow]:
    """A worker and a run it holds."""
    worker = await store.register(who("w"), ttl_s=30)
    return worker, (await store.create(new(id), worker=worker))[0].run


async def add(store: SqliteStore, worker: int, held: RunRow, *numbers: int) -> Verdict:
    """Append the records of these numbers."""
    write = RunWrite(held.num, held.epoch, numbers[0], [executed(n) for n in numbers])
    return (await store.append(worker, [write])).verdicts[0]
