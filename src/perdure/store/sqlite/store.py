"""The store on one SQLite file. Each verb's promise stands in `store/contract.py`; each noun's SQL in the module of
its name.

L1, J1, C1, S1: see the modules. D1 to D5: `connection.py`, `engine.py`, `wal.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from perdure.base.status import ControlKind
from perdure.base.world import World
from perdure.store.contract import Appended, Claimed, ControlRow, NewRun, RunRow, RunWrite, Where, WorkerInfo, WorkerRow
from perdure.store.sqlite import append, check, claims, control, journal, runs, workers
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.engine import Engine, Points, Work, points
from perdure.store.sqlite.errors import Unbatched
from perdure.store.sqlite.known import Known
from perdure.store.sqlite.stirred import Stirred

_CREATE = points("create")
_APPEND = points("append")
_CLAIM = points("claim")
_CONTROL = points("control")
_REGISTER = points("register")
_RENEW = points("renew")
_BURY = points("bury")
_RETIRE = points("retire")
_READMIT = points("readmit")
_PARK = points("park")


T = TypeVar("T")


class SqliteStore:
    def __init__(self, path: str, *, url: str, world: World) -> None:
        self.url = url
        self._engine = Engine(path, world)
        self._stirred = Stirred(path, world.monotonic)
        self._now = world.now
        self._known = self._nothing_known()
        # What claims may have taken whose answer never came (a failed COMMIT, a cancelled caller). The next claim
        # brings what they did take.
        self._unanswered: dict[int, list[list[Claimed]]] = {}

    def _nothing_known(self) -> Known:
        return Known(self._engine.foreign_version)

    async def open(self, *, worker: bool) -> None:
        await self._engine.open(worker=worker)

    async def close(self) -> None:
        await self._engine.close()

    # Runs

    async def create(self, new: NewRun, *, worker: int | None = None) -> tuple[Claimed, bool]:
        now, taken = self._now(), list[Claimed]()

        def work(db: Db) -> tuple[Claimed, bool]:
            made, added = runs.create(db, new, worker, now)
            taken[:] = [made] if added and made.run.worker is not None else []
            return made, added

        return await self._answered(worker, taken, self._engine.write(_CREATE, work))

    async def run(self, id: str) -> RunRow | None:
        return await self._engine.read(lambda db: runs.by_id(db, id))

    async def runs(self, where: Where, *, limit: int, before: int | None = None) -> list[RunRow]:
        return await self._engine.read(lambda db: runs.listing(db, where, limit, before))

    async def journal(self, num: int, *, after: int = 0) -> list[bytes]:
        return await self._engine.read(lambda db: journal.read(db, num, after))

    async def pulses(self, num: int) -> dict[int, tuple[float, bytes | None]]:
        return await self._engine.read(lambda db: journal.pulses(db, num))

    # A worker's writes

    async def append(self, worker: int, writes: list[RunWrite]) -> Appended:
        now, known = self._now(), self._known
        try:
            return await self._engine.write(_APPEND, lambda db: append.append(db, known, worker, writes, now))
        except Unbatched:
            self._known = fresh = self._nothing_known()
            return await self._engine.write(_APPEND, lambda db: append.append_singly(db, fresh, worker, writes, now))
        except BaseException:
            self._known = self._nothing_known()  # not `clear`: the thread may still use the old one
            raise

    async def register(self, info: WorkerInfo, *, ttl_s: float) -> int:
        now = self._now()
        return await self._engine.write(_REGISTER, lambda db: workers.register(db, info, ttl_s, now))

    async def renew(self, worker: int, *, ttl_s: float, agents: dict[str, str] | None = None) -> None:
        # Read the clock when the lock is held, so that waiting for it cannot shorten the lease.
        await self._engine.write(_RENEW, lambda db: workers.renew(db, worker, ttl_s, agents, self._now()))

    async def workers(self) -> list[WorkerRow]:
        return await self._engine.read(workers.listing)

    async def bury(self, worker: int, *, dead: bool) -> list[str] | None:
        if not dead and not await self._engine.read(lambda db: workers.over(db, worker, self._now())):
            return None  # neighbours ask this all the time: no lock for it
        return await self._taking_away(_BURY, lambda db: workers.bury(db, worker, dead=dead, now=self._now()))

    async def retire(self, worker: int) -> None:
        await self._taking_away(_RETIRE, lambda db: workers.retire(db, worker, self._now()))
        self._unanswered.pop(worker, None)

    async def claim(self, worker: int, agents: list[str], *, limit: int, only: str | None = None) -> list[Claimed]:
        await self._engine.settled()  # a claim whose caller went away may still be at work
        now, taken = self._now(), list[Claimed]()
        late = [(made.run.num, made.run.epoch) for lost in self._unanswered.get(worker, ()) for made in lost]
        if not late:
            self._unanswered.pop(worker, None)
        if not late and not await self._engine.read(lambda db: claims.due(db, agents, limit, only, now)):
            return []  # polling takes no lock

        def work(db: Db) -> list[Claimed]:
            found = claims.still_held(db, worker, late, now)
            taken[:] = [] if len(found) >= limit else claims.claim(db, worker, agents, limit - len(found), only, now)
            return found + taken

        claimed = await self._answered(worker, taken, self._engine.write(_CLAIM, work))
        self._unanswered.pop(worker, None)
        return claimed

    async def next_ready(self, agents: list[str], *, only: str | None = None) -> float | None:
        return await self._engine.read(lambda db: claims.next_ready(db, agents, only))

    async def readmit(self, agents: dict[str, str]) -> int:
        if not await self._engine.read(lambda db: claims.readmissible(db, agents)):
            return 0
        return await self._engine.write(_READMIT, lambda db: claims.readmit(db, agents, self._now()))

    async def park_orphans(self, agents: list[str], modules: list[str]) -> list[str]:
        if not await self._engine.read(lambda db: claims.orphans(db, agents, modules, self._now())):
            return []
        return await self._engine.write(_PARK, lambda db: claims.park_orphans(db, agents, modules, self._now()))

    async def _answered(self, worker: int | None, taken: list[Claimed], verb: Awaitable[T]) -> T:
        try:
            return await verb
        except BaseException:
            if worker is not None:
                self._unanswered.setdefault(worker, []).append(taken)
            raise

    async def _taking_away(self, at: Points, work: Work[T]) -> T:
        """Write what may take runs from this store's workers or leave requests for them."""
        try:
            return await self._engine.write(at, work)
        finally:
            self._known = self._nothing_known()

    # Control

    async def control(self, id: str, kind: ControlKind, *, body: bytes, by: str) -> RunRow:
        return await self._taking_away(_CONTROL, lambda db: control.control(db, id, kind, body, by, self._now()))

    async def controls(self, worker: int, *, after: int) -> list[ControlRow]:
        return await self._engine.read(lambda db: control.newer(db, worker, after))

    # Hints and health

    async def changed(self) -> bool:
        return await self._engine.changed()

    def stirred(self) -> bool:
        return self._stirred.look()

    async def checkpoint(self) -> None:
        await self._engine.checkpoint()

    async def check(self) -> list[str]:
        return await self._engine.read_slowly(check.check)

    def checkpoint_due(self) -> bool:
        return self._engine.wal.long
