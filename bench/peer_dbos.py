"""The same work on DBOS with its SQLite store. Its default settings, except that its admin server stays off."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import harness
from dbos import DBOS


@DBOS.step()
async def touch(n: int) -> int:
    return n


@DBOS.step()
async def leave() -> float:
    if "BENCH_RESUMED" in os.environ:
        harness.answer(time.monotonic() - float(os.environ["BENCH_RESUMED"]))
    os._exit(0)


@DBOS.workflow()
async def chain(steps: int) -> int:
    for n in range(steps):
        await touch(n)
    return steps


@DBOS.workflow()
async def long(steps: int) -> float:
    for n in range(steps):
        await touch(n)
    return await leave()


@DBOS.workflow()
async def noop() -> int:
    return 1


def launch(store: str) -> None:
    url = f"sqlite:///{store}"
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})
    DBOS.launch()


def sequential(place: str, steps: int) -> Any:
    async def main() -> float:
        launch(f"{place}/dbos.db")
        await chain(20)
        started = time.perf_counter()
        await chain(steps)
        return (time.perf_counter() - started) / steps

    return _finished(main())


def one_after_another(place: str, count: int) -> Any:
    async def main() -> list[float]:
        launch(f"{place}/dbos-noop.db")
        taken: list[float] = []
        for number in range(count + 10):
            started = time.perf_counter()
            await (await DBOS.start_workflow_async(noop)).get_result()
            if number >= 10:
                taken.append(time.perf_counter() - started)
        return taken

    return _finished(main())


def many(place: str, runs: int, steps: int) -> Any:
    """Steps per second, starts and results included."""

    async def main() -> float:
        launch(f"{place}/dbos-many.db")
        await chain(20)
        started = time.perf_counter()
        handles = await asyncio.gather(*(DBOS.start_workflow_async(chain, steps) for _ in range(runs)))
        await asyncio.gather(*(handle.get_result() for handle in handles))
        return runs * steps / (time.perf_counter() - started)

    return _finished(main())


def write_journal(store: str, steps: int) -> None:
    async def main() -> None:
        launch(store)
        await long(steps)

    asyncio.run(main())


def go_on(store: str) -> None:
    """It recovers what was left when it is launched; `leave` answers."""

    async def main() -> None:
        os.environ["BENCH_RESUMED"] = repr(time.monotonic())
        launch(store)
        await asyncio.sleep(300)

    asyncio.run(main())


def _finished(work: Any) -> Any:
    value = asyncio.run(work)
    harness.answer(value)
    os._exit(0)  # its threads would take seconds to leave


if __name__ == "__main__":
    harness.serve(
        {
            "sequential": sequential,
            "one_after_another": one_after_another,
            "many": many,
            "write_journal": write_journal,
            "go_on": go_on,
        }
    )
