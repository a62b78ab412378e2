"""Runs that wait: what each of them costs a worker's memory and the disk."""

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
WARM_UP = 5_000
AT_ONCE = 250
FEW, MANY = 10_000, 100_000


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
    few, many = options.of(FEW, 7_500), options.of(MANY, 10_000)
    with harness.folder(in_memory=True) as place:
        store, empty = place / "waiting.db", place / "empty.db"
        taken, seconds = harness.child("memory.py", "let_wait", store=str(store), sizes=[WARM_UP, few, many])
        fresh, bare = (harness.child("memory.py", "open_only", store=str(path)) for path in (store, empty))
    (_, *warm), *rest = taken
    rows: list[Row] = []
    for size, *grown in rest:
        rss, sqlite, disk = ((a - b) / (size - WARM_UP) for a, b in zip(grown, warm, strict=True))
        rows += [
            Row(f"memory per waiting run, {size:,} of them", "bytes", [rss], goals=(Goal(200.0),)),
            Row("  of this SQLite's page cache, which is bounded", "bytes", [sqlite]),
            Row("  on disk, for each", "bytes", [disk]),
        ]
    rss, sqlite = ((a - b) / many for a, b in zip(fresh, bare, strict=True))
    rows += [
        Row(f"a fresh worker's memory for each of {many:,}", "bytes", [rss], goals=(Goal(200.0),)),
        Row("  of this SQLite's page cache", "bytes", [sqlite]),
        Row("  runs started and put to sleep (in memory)", "/s", [many / seconds]),
    ]
    return rows


if __name__ == "__main__":
    harness.serve({"let_wait": let_wait, "open_only": open_only})
