"""One connection, its transactions, and where they run: on the loop while commits are fast, else on one thread.

D3. A transaction is committed once or not at all: COMMIT is never repeated. After an error the connection is dropped,
    and reopened on next use.
D4. The connection is never used by two threads at once: a verb first waits for what an earlier one left on the thread.
D6. Nothing is acknowledged for long that only a deleted file holds. Another file under the store's name ends the use
    of it: numbers of runs and workers mean others there.

Inline attempts do not wait for locks; a busy store hands the same work to the thread, which does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

import apsw

from perdure.base import faults, limits
from perdure.base.world import World
from perdure.errors import PerdureError, StoreDamaged, UsageError
from perdure.store.sqlite.connection import abandon, leave, open_connection
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.errors import Locked, Unbatched, is_busy, translate
from perdure.store.sqlite.paths import file_id, is_another
from perdure.store.sqlite.wal import Wal, prepare

T = TypeVar("T")
Work = Callable[[Db], T]

LOCK_WAIT_MS: Final = 5_000
OPEN_ATTEMPTS_MAX: Final = 20
INLINE_TRIAL_EVERY: Final = 100

CLOSE_BEFORE = faults.point("close.before", "the store is about to be closed")
CLOSE_AFTER = faults.point("close.after", "the store is closed")


class Points(NamedTuple):
    """The fault points of one transaction."""

    before_begin: str
    after_begin: str
    before_commit: str
    after_commit: str


def points(verb: str) -> Points:
    return Points(
        faults.point(f"{verb}.before_begin", "the verb was called"),
        faults.point(f"{verb}.after_begin", "the write lock is held"),
        faults.point(f"{verb}.before_commit", "all statements ran"),
        faults.point(f"{verb}.after_commit", "the transaction is durable, the caller does not know yet"),
    )


class Engine:
    def __init__(self, path: str, world: World) -> None:
        self.path = path
        self.wal = Wal()
        self.commit_unknown = False  # the last failed transaction died in or after COMMIT
        self._monotonic = world.monotonic
        self._db: Db | None = None
        self._opened = False
        self._worker = False
        self._commit_avg_s = 0.0
        self._turn = 0
        self._pool: ThreadPoolExecutor | None = None
        self._left: Future[object] | None = None
        self._data_version: int | None = None
        self._commits = 0
        self._file: tuple[int, int] | None = None
        self._log: tuple[int, int] | None = None

    # Open and close

    async def open(self, *, worker: bool) -> None:
        self._opened, self._worker, self._file = True, worker, None
        try:
            await self.read(lambda _: None)
        except BaseException:
            self._opened = False
            raise

    async def close(self) -> None:
        await self.settled()
        if faults.armed:
            faults.hit(CLOSE_BEFORE)
        self._opened = False
        db, self._db = self._db, None
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        if db is None:
            return
        try:
            leave(db)
        except apsw.Error as exc:
            abandon(db)
            raise translate(exc, self.path) from exc
        if faults.armed:
            faults.hit(CLOSE_AFTER)

    def _connected(self, patience_ms: int) -> Db:
        if self._db is not None:
            return self._db
        if not self._opened:
            raise UsageError(f"{self.path}: the store is not open. Open it first, and do not use it after close()")
        if self._file is not None:
            self._check_file()
        db = open_connection(self.path, patience_ms=patience_ms)
        try:
            if self._worker:
                prepare(db, self.path)
            # From here on SQLite itself keeps both: it deletes a log with the last connection only.
            self._file, self._log = file_id(self.path), file_id(self.path + "-wal")
        except BaseException:
            abandon(db)
            raise
        db.set_busy_timeout(patience_ms)
        db.set_wal_hook(self.wal.on_commit)
        self._data_version = None
        self._db = db
        return db

    def _check_file(self) -> None:
        if is_another(self.path, self._file):
            self._drop()
            raise StoreDamaged(
                f"{self.path}: the file was moved, deleted or replaced while it was in use, so nothing more is written. "
                "Stop all that use it, put the right file there, then start again"
            )

    def _drop(self) -> None:
        if (db := self._db) is not None:
            self._db = None
            abandon(db)

    # Work

    async def read(self, work: Work[T]) -> T:
        """Run `work` outside a transaction of ours; each of its statements sees one state of the store."""
        if self._left is not None:
            await self.settled()
        try:
            return self._look(work, 0)
        except Locked:
            return await self._on_thread(lambda: self._look(work, LOCK_WAIT_MS))

    async def read_slowly(self, work: Work[T]) -> T:
        """A long look, off the loop."""
        await self.settled()
        return await self._on_thread(lambda: self._look(work, LOCK_WAIT_MS))

    async def write(self, at: Points, work: Work[T]) -> T:
        """Run `work` in one durable transaction. It may run twice, if the first attempt met a lock."""
        if self._left is not None:
            await self.settled()
        if self._commit_avg_s <= limits.inline_commit_s_max or self._is_trial():
            try:
                return self._transact(at, work, 0)
            except Locked:
                pass
        return await self._on_thread(lambda: self._transact(at, work, LOCK_WAIT_MS))

    def _is_trial(self) -> bool:
        # Times taken on the thread include waits for the interpreter's lock, so only an inline commit can show that
        # the disk is fast again.
        self._turn += 1
        return self._turn % INLINE_TRIAL_EVERY == 0

    def _transact(self, at: Points, work: Work[T], patience_ms: int) -> T:
        self.commit_unknown = False
        armed = faults.armed
        if armed:
            faults.hit(at.before_begin)
        try:
            db = self._db or self._connected(patience_ms)
            db.execute("BEGIN IMMEDIATE")
            if armed:
                faults.hit(at.after_begin)
            value = work(db)
            if armed:
                faults.hit(at.before_commit)
            committing = self._monotonic()
            self.commit_unknown = True
            db.execute("COMMIT")
            self._commits += 1
            if armed:
                faults.hit(at.after_commit)
        except BaseException as exc:
            self._fail(exc)
            raise  # `_fail` raises for SQLite's own errors
        self.commit_unknown = False
        self._note(self._monotonic() - committing)
        if self.wal.pages > self.wal.overdue_at:
            with contextlib.suppress(PerdureError, Locked):  # the commit stands; the next verb meets what is wrong
                self._look(self.wal.move, patience_ms)
        return value

    def _note(self, commit_s: float) -> None:
        """Keep the moving average; a fast commit that was tried inline counts at once."""
        trial = self._commit_avg_s > limits.inline_commit_s_max and self._turn % INLINE_TRIAL_EVERY == 0
        self._commit_avg_s = commit_s if trial else 0.9 * self._commit_avg_s + 0.1 * commit_s

    def _look(self, work: Work[T], patience_ms: int) -> T:
        self.commit_unknown = False
        try:
            return work(self._connected(patience_ms))
        except BaseException as exc:
            self._fail(exc)
            raise

    def _fail(self, exc: BaseException) -> None:
        """Leave nothing half done, and tell the caller in our words."""
        if isinstance(exc, Locked):
            raise exc
        if not isinstance(exc, apsw.Error | PerdureError | UnicodeError | OverflowError | Unbatched):
            self._drop()  # cancelled or killed by a bug in the middle of anything
            return
        if is_busy(exc) and not self.commit_unknown:
            self._undo()
            raise Locked from exc
        if self.commit_unknown or (isinstance(exc, apsw.Error) and not isinstance(exc, apsw.TooBigError)):
            self._drop()  # D3
        else:
            self._undo()
        if not isinstance(exc, PerdureError | Unbatched):
            raise translate(exc, self.path) from exc

    def _undo(self) -> None:
        db = self._db
        if db is None or not db.in_transaction:
            return
        try:
            db.execute("ROLLBACK")
        except apsw.Error:
            self._drop()

    # The thread

    async def _on_thread(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "perdure-store")
        future = self._pool.submit(self._patiently, work)
        self._left = future  # type: ignore[assignment]  # its result is never looked at through this name
        try:
            return await asyncio.wrap_future(future)
        finally:  # cancelled: the work goes on, and `settled` waits for it
            if self._left is future and future.done():
                self._left = None

    async def settled(self) -> None:
        """Wait for work whose caller went away (D4)."""
        while (left := self._left) is not None:
            if not left.done():
                await _end_of(left)
            if self._left is left:
                self._left = None

    def _patiently(self, work: Callable[[], T]) -> T:
        until = self._monotonic() + LOCK_WAIT_MS / 1000
        for attempt in range(OPEN_ATTEMPTS_MAX):
            if (db := self._db) is not None:
                db.set_busy_timeout(LOCK_WAIT_MS)
            try:
                return work()
            except Locked as exc:
                # While a file is being created SQLite does not always wait for the lock; an open connection has
                # waited long enough.
                if self._db is not None or attempt == OPEN_ATTEMPTS_MAX - 1 or self._monotonic() >= until:
                    self._drop()  # a lock that outlasts the wait may be our own: SQLite does not see an unlock that fails
                    raise translate(exc, self.path) from exc
            finally:
                if self._db is not None:
                    self._db.set_busy_timeout(0)
        raise AssertionError("the loop returns or raises")

    # Housekeeping

    async def checkpoint(self) -> None:
        """Move the WAL into the file once it is long; the next commit then starts it over."""
        if not self.wal.long:
            return
        if self.wal.forced:
            await self.read_slowly(self.wal.move_patiently)
        else:
            await self.read(self.wal.move)

    def foreign_version(self, db: Db) -> int:
        """Changes when another connection has committed, never by commits made here. Call it in a transaction."""
        # SQLite adds one for each commit, also for our own. What it cannot tell apart looks like a foreign one.
        return db.data_version() - self._commits

    async def changed(self) -> bool:
        version = await self.read(self._version)
        before, self._data_version = self._data_version, version
        return version != before

    def _version(self, db: Db) -> int:
        self._check_file()
        if is_another(self.path + "-wal", self._log):  # somebody deleted the log: what it holds is saved
            self.wal.move(db)
            if not self.wal.pages:
                self._drop()
                db = self._connected(0)
        version: int = db.execute("PRAGMA data_version").get
        return version


async def _end_of(future: Future[object]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    await ended.wait()
