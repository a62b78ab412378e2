"""The one writer of a worker: commits whatever has queued up in one transaction, with no artificial delay (design 1.3).

J2. Nothing starts on a record before it is durable: `committed` is called after the commit, in journal order.
C1. Control that came before the commit is handed out before `committed` is called, so no effect starts over it.

A run has records in at most one batch in flight (design 1.6.5). Records that nobody waits for (reads) are committed with the next batch,
or after `lazy_commit_s`. While the store is unavailable everything stays queued and is tried again before anything else (Y10).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, Protocol, TypeVar

from perdure.base import faults, limits
from perdure.errors import LeaseLost, StoreUnavailable
from perdure.events.bus import Events, StoreTroubled
from perdure.store.contract import RunWrite, Store, Verdict
from perdure.worker.outbox import Outbox

log = logging.getLogger("perdure.worker")

_T = TypeVar("_T")
_WAIT_S: Final = 0.05
_WAIT_S_MAX: Final = 1.0

_AFTER_COMMIT = faults.point("writer.after_commit", "a batch is durable, nobody has been told")
_BEFORE_COMMIT = faults.point("writer.before_commit", "records are decided in memory, nothing is durable")


class Controls(Protocol):
    async def mark(self, control_mark: int) -> None:
        """Fetch and hand out control rows up to this one."""
        ...


class Writing(Protocol):
    """What the writer needs of a run."""

    outbox: Outbox

    def take_write(self) -> RunWrite | None: ...
    def write_back(self) -> None: ...
    def committed(self) -> None: ...
    def held_back(self) -> None: ...
    def lost(self) -> None: ...


class Writer:
    """A commit usually ends without waiting for anything, so it runs in a plain callback; only one that must wait becomes a task."""

    def __init__(self, store: Store, events: Events, controls: Controls, context: Context) -> None:
        self._store = store
        self._events = events
        self._controls = controls
        self._context = context  # not that of the step whose end called for a commit
        self._dirty: dict[Writing, None] = {}
        self._scheduled = False
        self._busy = False
        self._again = False  # somebody urgent has come since the last batch was taken
        self.settling = False  # a step settles now: whatever comes of it is one batch
        self._lazy: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._end: asyncio.Future[None] | None = None
        self._closing = False
        self._wait_s = _WAIT_S
        self.worker = 0
        self.under_way = 0  # attempts of steps: each may settle in this turn of the loop
        self.troubled: StoreUnavailable | None = None
        self.mark_seen = 0
        self.on_lease_lost: Callable[[], Awaitable[None]] | None = None

    def add(self, run: Writing, *, urgent: bool) -> None:
        """The run has something to write. Not urgent: nobody waits for it to be durable."""
        self._dirty[run] = None
        if urgent:
            self._again = True
            if not self.settling:
                self._schedule()
        elif self._lazy is None:
            self._lazy = asyncio.get_running_loop().call_later(
                limits.lazy_commit_s, self._flush_lazily, context=self._context
            )

    def settled(self) -> None:
        """A step has settled. If no other is under way, waiting for the loop's next turn would gather nothing more."""
        self.settling = False
        if self._scheduled or self._busy or not self._again:
            return
        if self.under_way:
            self._schedule()
        else:
            self._flush()

    def forget_all(self) -> None:
        self._dirty.clear()

    async def run(self) -> None:
        """Until closed; raises what no retry can mend."""
        self._end = asyncio.get_running_loop().create_future()
        if self._dirty or self._closing:
            self._schedule()
        await self._end

    def close(self) -> None:
        """Let `run` end once everything queued is written."""
        self._closing = True
        self._schedule()

    # The loop: one flush per turn of the event loop, one commit at a time

    def _schedule(self) -> None:
        if not self._scheduled and not self._busy:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush, context=self._context)

    def _flush_lazily(self) -> None:
        self._lazy = None
        self._schedule()

    def _flush(self) -> None:
        self._scheduled = False
        if self._busy:
            return
        if not self._dirty:
            if self._closing:
                self._finish(None)
            return
        self._busy = True
        work = self._commit()
        try:
            waits_for = work.send(None)
        except StopIteration:
            self._committed()
        except Exception as exc:  # noqa: BLE001  # sorted in `_mend`
            self._go_on(self._mend(exc))
        else:
            self._go_on(self._await_rest(work, waits_for))

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work, context=self._context)

    def _committed(self) -> None:
        self._busy = False
        if self.troubled is not None:
            log.warning("the store is back")
            self.troubled, self._wait_s = None, _WAIT_S
        if self._closing or self._again:
            self._schedule()

    async def _await_rest(self, work: Coroutine[Any, Any, None], waits_for: Any) -> None:
        try:
            await _resume(work, waits_for)
        except Exception as exc:  # noqa: BLE001  # sorted in `_mend`
            await self._mend(exc)
        else:
            self._committed()

    async def _mend(self, exc: Exception) -> None:
        """The store is away: wait and write again. The lease is lost: come back under a new number. Anything else ends the worker."""
        try:
            if isinstance(exc, StoreUnavailable) and not self._closing:
                self._trouble(exc)
                await asyncio.sleep(self._wait_s)
                self._wait_s = min(self._wait_s * 2, _WAIT_S_MAX)
            elif isinstance(exc, LeaseLost) and not self._closing and self.on_lease_lost is not None:
                await self.on_lease_lost()
            else:
                if self._closing:
                    self._dirty.clear()  # what could not be written now is recovered by whoever comes next
                self._finish(exc)
        except StoreUnavailable as again:
            await self._mend(again)
            return
        self._busy = False
        self._schedule()

    def _finish(self, exc: Exception | None) -> None:
        if self._end is None or self._end.done():
            return
        if exc is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(exc)

    def _trouble(self, exc: StoreUnavailable) -> None:
        if self.troubled is None:
            log.error("the store cannot be written: %s. No effect starts; work goes on when it is back", exc)
        self.troubled = exc
        self._events.emit(StoreTroubled(str(exc)))

    async def _commit(self) -> None:
        self._again = False
        runs: list[Writing] = []
        writes: list[RunWrite] = []
        records = size = 0
        for run in list(self._dirty):
            if records >= limits.batch_records_max or size >= limits.batch_bytes_max:
                self._again = True
                break
            del self._dirty[run]
            write = run.take_write()
            if write is not None:
                runs.append(run)
                writes.append(write)
                records += len(write.records)
                size += run.outbox.bytes
        if not writes:
            return
        try:
            if faults.armed:
                faults.hit(_BEFORE_COMMIT)
            appended = await self._store.append(self.worker, writes)
            if faults.armed:
                faults.hit(_AFTER_COMMIT)
            if appended.control_mark > self.mark_seen:
                await self._controls.mark(appended.control_mark)
        except (StoreUnavailable, LeaseLost):
            for run in runs:  # what was committed after all is recognised when it comes again
                run.write_back()
                self._dirty[run] = None
            raise
        for run, verdict in zip(runs, appended.verdicts, strict=True):
            match verdict:
                case Verdict.DONE:
                    run.committed()
                case Verdict.CONTROL:
                    run.held_back()
                case Verdict.FENCED | Verdict.CONFLICT:
                    run.lost()
        if self._store.checkpoint_due():
            await self._store.checkpoint()


@types.coroutine
def _resume(work: Coroutine[Any, Any, _T], waits_for: Any) -> Generator[Any, Any, _T]:
    """Go on with a coroutine that was started outside a task and waits for `waits_for`."""
    while True:
        try:
            sent = yield waits_for
        except BaseException as exc:  # noqa: BLE001  # thrown on into the coroutine, which it is for
            advance = functools.partial(work.throw, exc)
        else:
            advance = functools.partial(work.send, sent)
        try:
            waits_for = advance()
        except StopIteration as done:
            return done.value
