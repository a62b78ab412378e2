"""When a worker has nothing to do."""

from __future__ import annotations

import asyncio

from perdure import Perdure, agent
from perdure.base.world import RealWorld
from perdure.store.sqlite.store import SqliteStore


@agent
async def brief() -> str:
    return "done"


def test_a_run_on_its_way_from_the_store_keeps_a_worker_busy(tmp_path) -> None:
    """The claim is durable, its answer is not here yet: the run is neither ready nor in memory, and not forgotten."""
    path = str(tmp_path / "p.db")

    async def main() -> None:
        claimed, answer = asyncio.Event(), asyncio.Event()

        class Slow(SqliteStore):
            async def claim(self, *args, **options):
                found = await super().claim(*args, **options)
                if found:
                    claimed.set()
                    await answer.wait()
                return found

        async with Perdure(path, worker=False) as client:
            handle = await client.start(brief)
            async with Perdure(path, store=Slow(path, url=path, world=RealWorld())) as app:
                assert app.worker is not None
                await claimed.wait()
                idle = asyncio.create_task(app.worker.wait_idle(5))
                for _ in range(20):
                    await asyncio.sleep(0)
                answer.set()
                await idle
            assert await handle.status() == "completed"

    asyncio.run(main())
