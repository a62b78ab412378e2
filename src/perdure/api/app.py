"""`Perdure`: a store, and unless told otherwise a worker on it, for the time of an `async with`.

The worker, and the scan of an agent, are imported when they are first used: a client and a command never need them.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import _get_running_loop as get_running_loop
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from perdure.api import checks, registry
from perdure.api.agent import Agent
from perdure.api.handle import Handle, is_over
from perdure.api.views import RunView, run_view
from perdure.base import limits
from perdure.base.status import ControlKind
from perdure.base.world import RealWorld, World
from perdure.errors import Conflict, HiddenState, NotFound, StoreUnavailable, UsageError
from perdure.events.bus import (
    Event,
    Events,
    RunClaimed,
    RunEnded,
    RunLost,
    RunReleased,
    StoreChanged,
    WorkerBuried,
    WorkerFailed,
)
from perdure.kernel.loop import RunLoop
from perdure.kernel.source import agent_line
from perdure.kernel.spec import AgentSpec, input_of
from perdure.store.contract import NewRun, RunRow, Store, Where
from perdure.store.open import open_store

if TYPE_CHECKING:
    from perdure.worker.worker import Worker


class Perdure:
    """`async with Perdure("perdure.db") as app:` — `worker=False` for a client that only asks."""

    def __init__(
        self,
        url: str | os.PathLike[str] = "perdure.db",
        *,
        worker: bool = True,
        lease_ttl_s: float = limits.lease_ttl_s,
        grace_s: float = limits.grace_s,
        world: World | None = None,
        store: Store | None = None,
        only: str | None = None,
    ) -> None:
        self.url = checks.store_url(url)
        self.world: World = world or RealWorld()
        self.events = Events()
        self._store = store
        self._wants_worker = worker
        self._lease_ttl_s = lease_ttl_s
        self._grace_s = grace_s
        self._only = only
        self.worker: Worker | None = None
        self._watch: asyncio.Task[None] | None = None
        self._waiters: dict[str, list[asyncio.Event]] = {}
        self._here: set[str] = set()  # runs in this worker's memory: whoever waits for one is told, and need not look
        self._stop_listening: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        _not_in_an_agent("opened a Perdure")
        if self._store is None:
            self._store = open_store(self.url, self.world)
        await self._store.open(worker=self._wants_worker)
        self._stop_listening = self.events.subscribe(self._notice)
        try:
            if self._wants_worker:
                self.worker = await self._started_worker(self._store)
        except BaseException:
            await self._store.close()
            raise
        return self

    async def _started_worker(self, store: Store) -> Worker:
        from perdure.kernel.guard.hooks import install
        from perdure.worker.worker import Worker

        install()
        worker = Worker(
            store,
            self.world,
            registry.agents,
            events=self.events,
            lease_ttl_s=self._lease_ttl_s,
            only=self._only,
        )
        await worker.start()
        return worker

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(grace_s=self._grace_s)

    async def close(self, *, grace_s: float = limits.grace_s) -> None:
        """Finish the steps that run, within the grace time; hand back the runs; close the store."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        try:
            if self.worker is not None:
                await self.worker.stop(grace_s)
        finally:
            self.worker = None
            if self._stop_listening is not None:
                self._stop_listening()
                self._stop_listening = None
            if self._store is not None:
                await self._store.close()
                self._store = None

    # Runs

    async def start(
        self,
        agent: Agent[..., Any] | AgentSpec,
        *args: Any,
        id: str | None = None,
        queue: str = "default",
        priority: int = 0,
        delay: float = 0.0,
        tags: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> Handle:
        """Record a run; it is durable when this returns. The same id again gives the run that is there."""
        from perdure.kernel.guard.scan import check_agent

        _not_in_an_agent("started a run")
        spec = _spec(agent)
        check_agent(spec.fn)
        wait_s = checks.delay(delay)
        new = NewRun(
            id=checks.run_id(id) if id is not None else self.world.name(),
            agent=spec.name,
            module=spec.module,
            input=input_of(*registry.bound(spec, args, kwargs)),
            queue=checks.queue(queue),
            priority=checks.priority(priority),
            ready_at=self.world.now() + wait_s if wait_s > 0 else None,
            tags=checks.tags({} if tags is None else tags),
        )
        if self.worker is not None:
            row, created = await self.worker.admit(new)
        else:
            claimed, created = await self._open_store().create(new)
            row = claimed.run
        if not created:
            _check_same(row, new)
        return Handle(self, row.id)

    def get(self, id: str) -> Handle:
        """A handle on a run; `await app.get(id)` also checks that it exists."""
        return Handle(self, id)

    def list(
        self,
        where: Where | dict[str, Any] | None = None,
        *,
        limit: int | None = limits.listing_rows_max,
        before: int | None = None,
    ) -> Listing:
        """The runs, newest first: `await app.list()` or `async for run in app.list()`. `limit=None`: all."""
        return Listing(self, checks.where(where), checks.limit(limit), before)

    # For handles and commands

    def _open_store(self) -> Store:
        _not_in_an_agent("used a Perdure or a Handle")
        if self._store is None:
            raise UsageError("this Perdure is not open. Use it inside `async with Perdure(…) as app:`")
        return self._store

    async def store_run(self, id: str) -> RunRow | None:
        return await self._open_store().run(id)

    async def store_runs(self, where: Where, *, limit: int, before: int | None) -> Sequence[RunRow]:
        return await self._open_store().runs(where, limit=limit, before=before)

    async def store_journal(self, num: int, *, after: int = 0) -> Sequence[bytes]:
        return await self._open_store().journal(num, after=after)

    async def store_control(self, id: str, kind: ControlKind, body: bytes, by: str) -> RunRow:
        row = await self._open_store().control(id, kind, body=body, by=by)
        if self.worker is not None:
            await self.worker.mark(0)
            self.worker.knock()
        self._wake(id)
        return row

    async def wait_for_end(self, id: str) -> RunRow:
        """The run's row once it has ended or needs a person."""
        _not_in_an_agent("waited for a run")
        bell = asyncio.Event()
        self._waiters.setdefault(id, []).append(bell)
        try:
            while True:
                if id in self._here:
                    await bell.wait()
                bell.clear()
                row = await self.store_run(id)
                if row is None:
                    raise NotFound(f"there is no run {id!r} in {self.url}. `perdure ps` lists the runs")
                if is_over(row):
                    return row
                if self.worker is None and self._watch is None:
                    self._watch = asyncio.get_running_loop().create_task(self._watch_store())
                if self.worker is not None and self.worker.failure is not None:
                    raise self.worker.failure
                await bell.wait()
        finally:
            self._waiters[id].remove(bell)
            if not self._waiters[id]:
                del self._waiters[id]

    async def _watch_store(self) -> None:
        """A client has no worker that looks for changes: it looks itself while somebody waits."""
        while True:
            try:
                changed = self._open_store().stirred() and await self._open_store().changed()
            except StoreUnavailable:
                changed = True  # who waits looks for himself, and tells his caller if the store is still away
            if changed:
                self.events.emit(StoreChanged())
            await asyncio.sleep(limits.poll_s)

    def _notice(self, event: Event) -> None:
        match event:
            case RunClaimed():
                self._here.add(event.id)
            case RunEnded() | RunReleased() | RunLost():
                self._here.discard(event.id)
                self._wake(event.id)
            case WorkerFailed():
                self._here.clear()
                self._wake_all()
            case StoreChanged() | WorkerBuried():
                self._wake_all()
            case _:
                pass

    def _wake_all(self) -> None:
        for waited_for in self._waiters:
            self._wake(waited_for)

    def _wake(self, id: str) -> None:
        for bell in self._waiters.get(id, ()):
            bell.set()


class Listing:
    def __init__(self, app: Perdure, where: Where, limit: int | None, before: int | None) -> None:
        self._app = app
        self._where = where
        self._limit = limit
        self._before = before

    def __await__(self) -> Generator[Any, None, list[RunView]]:
        return self._fetch().__await__()

    async def _fetch(self) -> list[RunView]:
        return [view async for view in self]

    async def __aiter__(self) -> AsyncIterator[RunView]:
        left, before = self._limit, self._before
        while left is None or left > 0:
            wanted = limits.listing_rows_max if left is None else min(left, limits.listing_rows_max)
            page = await self._app.store_runs(self._where, limit=wanted, before=before)
            for row in page:
                yield run_view(row, self._app.world.now())
            if len(page) < wanted:
                return
            left, before = None if left is None else left - len(page), page[-1].num


def _spec(agent: Agent[..., Any] | AgentSpec) -> AgentSpec:
    if isinstance(agent, AgentSpec):
        return agent
    spec = getattr(agent, "spec", None)
    if not isinstance(spec, AgentSpec):
        raise UsageError(f"app.start() takes an agent, not {agent!r}. Put @agent above its `async def`")
    return spec


def _check_same(row: RunRow, new: NewRun) -> None:
    if row.agent != new.agent:
        raise Conflict(
            f"run {row.id!r} is there already and belongs to agent {row.agent!r}, not {new.agent!r}. Choose another id"
        )
    if row.input != new.input:
        raise Conflict(
            f"run {row.id!r} is there already with other arguments. Choose another id, or use app.get({row.id!r})"
        )


def _not_in_an_agent(what: str) -> None:
    """What happens here is not in the run's journal, and would happen again on replay."""
    if type(get_running_loop()) is not RunLoop:
        return
    file, line = agent_line()
    raise HiddenState(
        f"{file}:{line}: agent code {what}, which is not recorded and would happen again on replay. Move it into a @step",
        file=file,
        line=line,
    )
