"""The one writer of a worker: commits whatever has queued up in one transaction, with no artificial delay (design 1.3).

J2. Nothing starts on a record before it is durable: `committed` is called after the commit, in journal order.
C1. Control that came before the commit is handed out before `committed` is called, so no effect starts over it.

A run has records in at most one batch in flight (design 1.6.5). Records that nobody waits for (reads) are committed with the next batch,
or after `lazy_commit_s`. While the store is unavailable everything stays queued and is tried again before anything else (Y10).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from perdure.base import faults, limits
from perdure.errors import LeaseLost, StoreUnavailable
from perdure.events.bus import Events, StoreTroubled
from perdure.store.contract import RunWrite, Store, Verdict

log = logging.getLogger("perdure.worker")

_AFTER_COMMIT = faults.point("writer.after_commit", "a batch is durable, nobody has been told")
_BEFORE_COMMIT = faults.point("writer.before_commit", "records are decided in memory, nothing is durable")


class Controls(Protocol):
    async def mark(self, control_mark: int) -> None:
        """Fetch and hand out control rows up to this one."""
        ...


class Writing(Protocol):
    """What the writer needs of a run."""

    pending_bytes: int

    def take_write(self) -> RunWrite | None: ...
    def write_back(self) -> None: ...
    def committed(self) -> None: ...
    def held_back(self) -> None: ...
    def lost(self) -> None: ...


class Writer:
    def __init__(self, store: Store, lock: asyncio.Lock, events: Events, controls: Controls) -> None:
        self._store = store
        self._lock = lock
        self._events = events
        self._controls = controls
        self._dirty: dict[Writing, None] = {}
        self._sleeper: asyncio.Future[None] | None = None
        self._lazy: asyncio.TimerHandle | None = None
        self._closing = False
        self.worker = 0
        self.troubled: StoreUnavailable | None = None
        self.mark_seen = 0
        self.on_lease_lost: Callable[[], Awaitable[None]] | None = None

    def add(self, run: Writing, *, urgent: bool) -> None:
        """The run has something to write. Not urgent: nobody waits for it to be durable."""
        self._dirty[run] = None
        if urgent:
            self._wake()
        elif self._lazy is None:
            self._lazy = asyncio.get_running_loop().call_later(limits.lazy_commit_s, self._wake_lazily)

    def _wake(self) -> None:
        sleeper = self._sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    def _wake_lazily(self) -> None:
        self._lazy = None
        self._wake()

    async def close(self) -> None:
        """Let the loop end once everything queued is written."""
        self._closing = True
        self._wake()

    def forget_all(self) -> None:
        self._dirty.clear()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = 0.05
        while True:
            if not self._dirty:
                if self._closing:
                    return
                self._sleeper = loop.create_future()
                await self._sleeper
                self._sleeper = None
                continue
            try:
                await self._commit()
            except StoreUnavailable as exc:
                if self._closing:
                    raise
                self._trouble(exc)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, 1.0)
                continue
            except LeaseLost:
                if self._closing or self.on_lease_lost is None:
                    raise
                await self.on_lease_lost()
                continue
            if self.troubled is not None:
                log.warning("the store is back")
                self.troubled, wait_s = None, 0.05
            await asyncio.sleep(0)

    def _trouble(self, exc: StoreUnavailable) -> None:
        if self.troubled is None:
            log.error("the store cannot be written: %s. No effect starts; work goes on when it is back", exc)
        self.troubled = exc
        self._events.emit(StoreTroubled(str(exc)))

    async def _commit(self) -> None:
        runs: list[Writing] = []
        writes: list[RunWrite] = []
        records = size = 0
        for run in list(self._dirty):
            if records >= limits.batch_records_max or size >= limits.batch_bytes_max:
                break
            del self._dirty[run]
            write = run.take_write()
            if write is not None:
                runs.append(run)
                writes.append(write)
                records += len(write.records)
                size += run.pending_bytes
        if not writes:
            return
        if faults.armed:
            faults.hit(_BEFORE_COMMIT)
        try:
            async with self._lock:
                appended = await self._store.append(self.worker, writes)
        except (StoreUnavailable, LeaseLost):
            for run in runs:
                run.write_back()
                self._dirty[run] = None
            raise
        if faults.armed:
            faults.hit(_AFTER_COMMIT)
        if appended.control_mark > self.mark_seen:
            await self._controls.mark(appended.control_mark)
        for run, verdict in zip(runs, appended.verdicts, strict=True):
            match verdict:
                case Verdict.DONE:
                    run.committed()
                case Verdict.CONTROL:
                    run.held_back()
                case Verdict.FENCED | Verdict.CONFLICT:
                    run.lost()
