"""A fresh process to its next new step, after many steps: how long, and how much of it for each recorded step."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import agents
import harness
import uvloop
from harness import Goal, Options, Row

from perdure import Perdure

SHORT, LONG = 5_000, 50_000


# In the child


def write_journal(store: str, steps: int) -> None:
    """Ends in the middle of the step after these, as a killed process does: no answer."""

    async def main() -> None:
        async with Perdure(store) as app:
            await (await app.start(agents.long, steps, id="long")).result()

    uvloop.run(main())


def go_on(store: str) -> Any:
    """Seconds from opening the store to the new step; the import has been paid for."""
    os.environ["BENCH_RESUMED"] = "1"

    async def main() -> float:
        started = time.monotonic()
        async with Perdure(store) as app:
            return await app.get("long").result() - started

    return uvloop.run(main())


# In the parent


def journal(place: Path, steps: int) -> Path:
    """The folder of a store whose run has so many recorded steps and one that was interrupted."""
    kept = place / str(steps)
    kept.mkdir()
    try:
        harness.child("resume.py", "write_journal", store=str(kept / "p.db"), steps=steps)
    except RuntimeError as exc:
        if "ended with 0 and no answer" not in str(exc):
            raise
    return kept


def resumed_s(kept: Path, copy: Path) -> float:
    shutil.copytree(kept, copy)
    try:
        return float(harness.child("resume.py", "go_on", store=str(copy / "p.db")))
    finally:
        shutil.rmtree(copy)


def measure(options: Options) -> list[Row]:
    short, long = SHORT, options.of(LONG, 10_000)
    with harness.folder() as place:
        kept = {steps: journal(place, steps) for steps in (0, short, long)}
        taken: dict[int, list[float]] = {steps: [] for steps in kept}
        for _ in range(options.of(options.rounds, 1)):
            for steps, source in kept.items():
                taken[steps].append(resumed_s(source, place / "copy"))
    nothing = [s * 1e3 for s in taken[0]]
    rows = [Row("resume after 0 steps (opening alone)", "ms", nothing)]
    for steps in (short, long):
        whole = [s * 1e3 for s in taken[steps]]
        each = [(a - b) / steps * 1e6 for a, b in zip(taken[steps], taken[0], strict=True)]
        goals = (Goal(250.0),) if steps == short else ()
        rows.append(Row(f"resume after {steps:,} steps, import apart", "ms", whole, "opening alone", nothing, goals))
        rows.append(Row("  for each step (two records)", "µs", each, goals=(Goal(10.0),)))
    return rows


if __name__ == "__main__":
    harness.serve({"write_journal": write_journal, "go_on": go_on})
