"""What the promises are made of: a clock that stands still, stores on the same data, runs in a few known states."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context
from typing import Any

from perdure.base.records import Begun, Ended, Executed, encode_record
from perdure.base.status import ControlKind, Status
from perdure.base.world import World
from perdure.errors import PerdureError
from perdure.store.contract import Claimed, NewRun, RunChange, RunRow, RunWrite, Store, Verdict, WorkerInfo

MakeStore = Callable[[World], Store]


class StillWorld:
    """Time moves when a promise says so; names and numbers are counted."""

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self._drawn = random.Random(1)
        self._names = 0

    def advance(self, s: float) -> None:
        self.time += s

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def random(self) -> float:
        return self._drawn.random()

    def seed(self) -> int:
        return self._drawn.getrandbits(63)

    def name(self) -> str:
        self._names += 1
        return f"name-{self._names:06}"

    def spawn(self, work: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)


class Kit:
    """One promise's surroundings. `store` is open; `another` opens further objects on the same data."""

    def __init__(self, make_store: MakeStore, world: StillWorld, stack: AsyncExitStack, store: Store) -> None:
        self.world = world
        self.store = store
        self._make_store = make_store
        self._stack = stack

    async def another(self) -> Store:
        store = self._make_store(self.world)
        await store.open(worker=False)
        self._stack.push_async_callback(store.close)
        return store

    async def worker(self, name: str = "w", *, ttl_s: float = 30.0, agents: dict[str, str] | None = None) -> int:
        return await self.store.register(who(name, agents=agents), ttl_s=ttl_s)

    async def queued(self, id: str, **fields: Any) -> RunRow:
        return (await self.store.create(new(id, **fields)))[0].run

    async def held(self, id: str, worker: int, **fields: Any) -> RunRow:
        """A new run that `worker` holds; it has no records yet."""
        return (await self.store.create(new(id, **fields), worker=worker))[0].run

    async def write(self, worker: int, run: RunRow, *records: bytes, seq: int = 1, **fields: Any) -> Verdict:
        write = RunWrite(run.num, run.epoch, seq, list(records), **fields)
        return (await self.store.append(worker, [write])).verdicts[0]

    async def let_go(self, worker: int, run: RunRow, status: Status, **fields: Any) -> RunRow:
        """A begun run in that status, held by nobody."""
        records = [begun()] if run.seq == 0 else [executed(run.seq)]
        change = RunChange(status, release=True, **fields)
        assert await self.write(worker, run, *records, seq=run.seq + 1, change=change) is Verdict.DONE
        return await self.row(run.id)

    async def row(self, id: str) -> RunRow:
        row = await self.store.run(id)
        assert row is not None, f"run {id} is gone"
        return row

    async def claim(self, worker: int, *agents: str, limit: int = 10, only: str | None = None) -> list[Claimed]:
        return await self.store.claim(worker, list(agents or ("a",)), limit=limit, only=only)

    async def ask(self, id: str, kind: ControlKind, *, body: bytes = b"", by: str = "someone") -> RunRow:
        return await self.store.control(id, kind, body=body, by=by)


def new(id: str, **fields: Any) -> NewRun:
    given: dict[str, Any] = {"id": id, "agent": "a", "module": "m", "input": b"input", **fields}
    return NewRun(**given)


def who(name: str, *, agents: dict[str, str] | None = None) -> WorkerInfo:
    return WorkerInfo(name, "host", 1, 2, {"a": "v1"} if agents is None else agents, ["m"])


def begun() -> bytes:
    return encode_record(Begun(1.0, python="3.11", code="v1", seed=1))


def executed(position: int) -> bytes:
    return encode_record(Executed(2.0, position=position, attempt=1, result=b"result"))


def ended() -> bytes:
    return encode_record(Ended(3.0, status="completed"))


async def error_of(verb: Awaitable[Any]) -> PerdureError | None:
    """The typed error that a verb ends in."""
    try:
        await verb
    except PerdureError as exc:
        return exc
    return None
