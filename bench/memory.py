"""Runs that wait, and runs that have ended: what a worker's memory holds of them, and the disk.

Some of it is there once, whatever their number: the interpreter and its modules, and SQLite's page cache, which fills up
to its bound in the first 25,000 runs or so. The goal is about what one more waiting run costs, everything included.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from pathlib import Path
from typing import Any

import agents
import apsw
import harness
import uvloop
from harness import Goal, Options, Row

from perdure import Perdure

FAR_S = 30 * 24 * 3600.0
AT_ONCE = 250
FEW, MANY = 10_000, 100_000
FINISHED_WARM_UP, FINISHED = 25_000, 100_000
MB = 1e6


def rss_bytes() -> int:
    """What the process holds, after giving back what it can."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# In the child


def let_wait(store: str, sizes: list[int]) -> Any:
    """Start runs up to each size, let them fall asleep; the worker's memory at each, and seconds for all."""

    async def main() -> tuple[list[tuple[int, int, int, int]], float]:
        taken: list[tuple[int, int, int, int]] = []
        async with Perdure(store) as app:
            made, began = 0, time.perf_counter()
            for size in sizes:
                while made < size:
                    count = min(AT_ONCE, size - made)
                    for _ in range(count):
                        await app.start(agents.sleeper, FAR_S)
                    made += count
                    await _none_here(app)
                taken.append((size, rss_bytes(), apsw.memory_used(), _disk_bytes(Path(store))))
            return taken, time.perf_counter() - began

    return uvloop.run(main())


def let_finish(store: str, sizes: list[int]) -> Any:
    """Short runs through one worker; its memory after each number of them."""

    async def main() -> list[int]:
        taken: list[int] = []
        async with Perdure(store) as app:
            made = 0
            for size in sizes:
                for _ in range((size - made) // AT_ONCE):
                    for _ in range(AT_ONCE):
                        await app.start(agents.noop)
                    await _none_here(app)
                made = size
                taken.append(rss_bytes())
        return taken

    return uvloop.run(main())


def open_only(store: str) -> Any:
    """The memory of a worker that finds all of them waiting."""

    async def main() -> tuple[int, int]:
        async with Perdure(store):
            await asyncio.sleep(1.0)  # some turns of its loops
            return rss_bytes(), apsw.memory_used()

    return uvloop.run(main())


async def _none_here(app: Perdure) -> None:
    """Until every run has left memory."""
    assert app.worker is not None
    while app.worker.running:  # noqa: ASYNC110  # nothing is told of this
        await asyncio.sleep(0.002)


def _disk_bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in store.parent.glob(store.name + "*") if not path.name.endswith("-shm"))


# In the parent


def measure(options: Options) -> list[Row]:
    few, many = options.of(FEW, 2_500), options.of(MANY, 10_000)
    finished = [options.of(FINISHED_WARM_UP, 2_500), options.of(FINISHED, 10_000)]
    with harness.folder(in_memory=True) as place:
        store, empty = place / "waiting.db", place / "empty.db"
        taken, seconds = harness.child("memory.py", "let_wait", store=str(store), sizes=[0, few, many])
        fresh, bare = (harness.child("memory.py", "open_only", store=str(path)) for path in (store, empty))
        ended = harness.child("memory.py", "let_finish", store=str(place / "ended.db"), sizes=finished)
    (_, rss_none, cache_none, _), (_, rss_few, cache_few, disk_few), (_, rss, cache, disk) = taken
    more = many - few
    each = (rss - rss_few) / more
    return [
        Row("once: a worker before its first run", "MB", [rss_none / MB]),
        Row(f"  more with the first {few:,} waiting runs", "MB", [(rss_few - rss_none) / MB]),
        Row("    of this SQLite's page cache, at most 8 MB", "MB", [(cache_few - cache_none) / MB]),
        Row(f"one more waiting run, {few:,} to {many:,}", "bytes", [each], goals=(Goal(200.0),)),
        Row("  without the page cache", "bytes", [each - (cache - cache_few) / more]),
        Row("  on disk", "bytes", [(disk - disk_few) / more]),
        Row(
            f"a fresh worker's memory for each of {many:,}",
            "bytes",
            [(fresh[0] - bare[0]) / many],
            goals=(Goal(200.0),),
        ),
        Row(
            f"one more finished run, {finished[0]:,} to {finished[1]:,}",
            "bytes",
            [(ended[1] - ended[0]) / (finished[1] - finished[0])],
        ),
        Row("  runs started and put to sleep (in memory)", "/s", [many / seconds]),
    ]


if __name__ == "__main__":
    harness.serve({"let_wait": let_wait, "let_finish": let_finish, "open_only": open_only})
