"""Random kills of several workers on one file, and the checker that decides whether anything was lost or doubled.

Checked: keyed effects are applied exactly once per key; a `once` effect at most once, and every doubt about one is shown; no run is stuck; what was
acknowledged of a journal stays its beginning. A campaign in which little happened fails as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.crash.agents import WANDERER_KEYED, WANDERER_ROUNDS

from perdure import Conflict, Perdure

if TYPE_CHECKING:
    from tests.crash.conftest import Case

    from perdure.testing.crash import Process

WORKERS = 3
RUNS_OPEN = 8
END_S = 90.0
OPEN = ["queued", "running", "waiting", "parked", "paused"]
POINTS = (
    "writer.*",
    "step.*",
    "append.*",
    "claim.*",
    "bury.*",
    "run.left",
    "renew.*",
    "open.*",
    "register.*",
    "readmit.*",
)
RESULT = WANDERER_ROUNDS * 3 + 3 * sum(range(WANDERER_ROUNDS))


@dataclass
class Campaign:
    case: Case
    kills_wanted: int
    draw: random.Random
    kills: int = 0
    started: int = 0
    doubts: int = 0
    loops: int = 0
    pauses: int = 0
    workers: list[Process] = field(default_factory=list)
    journals: dict[str, list[bytes]] = field(default_factory=dict)

    async def run(self) -> None:
        async with Perdure(str(self.case.store), worker=False) as app:
            while self.kills < self.kills_wanted:
                await self.keep_busy(app)
                self.keep_staffed()
                await asyncio.sleep(self.draw.uniform(0.005, 0.08))  # until some moment: that is the point
                victim = self.draw.choice(self.workers)
                victim.kill()
                await self.look_after(app)
            for worker in self.workers:
                worker.kill()
            await self.finish(app)

    def keep_staffed(self) -> None:
        alive = [worker for worker in self.workers if worker.alive]
        self.kills += sum(worker.wait() == -9 for worker in self.workers if not worker.alive)
        odd = [worker for worker in self.workers if not worker.alive and worker.wait() != -9]
        assert not odd, odd[0].said()
        while len(alive) < WORKERS:
            faults = ""
            if self.draw.random() < 0.5:
                share, seed = self.draw.choice((0.3, 0.05, 0.01)), self.draw.randrange(1 << 30)
                faults = f"{self.draw.choice(POINTS)}:kill={share}:seed={seed}"
            alive.append(self.case.spawn(forever=True, faults=faults))
        self.workers = alive

    async def keep_busy(self, app: Perdure) -> None:
        open_now = [view async for view in app.list({"status": OPEN})]
        for _ in range(RUNS_OPEN - len(open_now)):
            self.started += 1
            await app.start(_wanderer(), self.case.book.url, id=f"w{self.started}")

    async def look_after(self, app: Perdure, *, meddle: bool = True) -> None:
        """What a person would do: decide about doubts by looking at the target, let crash loops go on. And compare journals."""
        async for view in app.list({"status": "parked"}):
            handle = app.get(view.id)
            if view.reason == "in_doubt":
                self.doubts += 1
                await self.decide(handle)
            else:
                assert view.reason == "crash_loop", view
                self.loops += 1
                await handle.resume()
        async for view in app.list({"status": "paused"}):
            await app.get(view.id).resume()
        if meddle and self.draw.random() < 0.3:
            await self.pause_one(app)
        for number in self.draw.sample(range(1, self.started + 1), min(3, self.started)):
            await self.compare(app, f"w{number}")

    async def pause_one(self, app: Perdure) -> None:
        running = [view async for view in app.list({"status": ["queued", "running", "waiting"]})]
        if running:
            self.pauses += 1
            with contextlib.suppress(Conflict):  # it has just ended
                await app.get(self.draw.choice(running).id).pause()

    async def decide(self, handle: Any) -> None:
        step = next(entry for entry in reversed(await handle.history()) if str(entry.detail).startswith("in doubt"))
        assert step.name == "sent"
        slip = next((slip for slip in self.case.book.slips("sent") if slip.key == step.key), None)
        if slip is not None and slip.applied:
            await handle.resolve(step.position, done="sent")
        else:
            await handle.resolve(step.position, retry=True)

    async def compare(self, app: Perdure, id: str) -> None:
        row = await app.store_run(id)
        assert row is not None
        now, before = await app.store_journal(row.num), self.journals.get(id, [])
        assert now[: len(before)] == before, f"the journal of {id} has lost or changed what it said"
        self.journals[id] = now

    async def finish(self, app: Perdure) -> None:
        """One worker without faults: everything must come to its end."""
        last = self.case.spawn(forever=True)
        async with asyncio.timeout(END_S):
            while open_now := [view async for view in app.list({"status": OPEN})]:
                await self.look_after(app, meddle=False)
                assert last.alive, last.said()
                await asyncio.sleep(0.02)
        last.kill()
        assert not open_now
        for number in range(1, self.started + 1):
            await self.compare(app, f"w{number}")

    async def check(self) -> Counter[str]:
        sums: Counter[str] = Counter(
            kills=self.kills, runs=self.started, doubts=self.doubts, loops=self.loops, pauses=self.pauses
        )
        async with Perdure(str(self.case.store), worker=False) as app:
            views = [view async for view in app.list(limit=100_000)]
        assert [view for view in views if (view.status, view.result) != ("completed", RESULT)] == []
        assert len(views) == self.started
        sums["reclaims"] = sum(view.attempt - 1 for view in views)
        for name, per_run in (("keyed", WANDERER_KEYED), ("sent", 1), ("probed", 1)):
            slips = self.case.book.slips(name)
            assert [slip for slip in slips if slip.applied != 1 and slip.calls] == []
            assert sum(slip.applied for slip in slips) == per_run * self.started
            sums[f"{name} again"] = sum(slip.calls - 1 for slip in slips if slip.calls)
        return sums


def _wanderer() -> Any:
    from perdure.api import registry

    return registry.agents["wanderer"]


def campaign(case: Case, kills: int, seed: int) -> Counter[str]:
    case.book.without_dedupe("sent")
    made = Campaign(case, kills, random.Random(seed))
    asyncio.run(made.run())
    return asyncio.run(made.check())
