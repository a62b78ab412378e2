"""Steps against the raw disk: sequential steps, many runs side by side, a run without steps, chains of reads."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import agents
import harness
import uvloop
from harness import Goal, Options, Raw, Row

from perdure import Perdure

SIDE_BY_SIDE = {1: 2000, 10: 500, 100: 200, 1000: 20}  # runs -> steps of each


# In the child


def sequential(place: str, slices: int, steps: int, writes: int, agent: str = "chain") -> Any:
    """Slices of steps and of raw writes in turn: seconds per step and per write, for each slice."""

    async def main() -> tuple[list[float], list[float]]:
        raw, ours, floor = Raw(Path(place)), list[float](), list[float]()
        async with Perdure(f"{place}/sequential.db") as app:
            await (await app.start(getattr(agents, agent), 100)).result()
            for _ in range(slices):
                floor.append(raw.seconds(writes))
                started = time.perf_counter()
                await (await app.start(getattr(agents, agent), steps)).result()
                ours.append((time.perf_counter() - started) / steps)
        raw.close()
        return ours, floor

    return uvloop.run(main())


def only_steps(place: str, steps: int, agent: str = "chain") -> Any:
    """For strace: nothing but the run."""

    async def main() -> None:
        async with Perdure(f"{place}/strace-{agent}-{steps}.db") as app:
            await (await app.start(getattr(agents, agent), steps)).result()

    uvloop.run(main())
    return steps


def side_by_side(place: str, runs: int, steps: int, writes: int) -> Any:
    """Steps per second of runs that begin together, and raw writes per second before and after."""

    async def main() -> tuple[float, float]:
        raw = Raw(Path(place))
        async with Perdure(f"{place}/side-{runs}-{time.monotonic_ns()}.db") as app:
            await (await app.start(agents.chain, 100)).result()
            agents.gates.append(agents.Gate())
            handles = [await app.start(agents.gated, steps) for _ in range(runs)]
            while agents.gates[-1].there < runs:  # noqa: ASYNC110  # nothing is told of this
                await asyncio.sleep(0.001)
            floor = [raw.seconds(writes)]
            started = time.perf_counter()
            agents.gates[-1].opened.set()
            await asyncio.gather(*(handle.result() for handle in handles))
            took = time.perf_counter() - started
            floor.append(raw.seconds(writes))
        raw.close()
        return runs * steps / took, 2 / sum(floor)

    return uvloop.run(main())


def many(place: str, runs: int, steps: int) -> Any:
    """Steps per second, starts and results included."""

    async def main() -> float:
        async with Perdure(f"{place}/many.db") as app:
            await (await app.start(agents.chain, 20)).result()
            started = time.perf_counter()
            handles = await asyncio.gather(*(app.start(agents.chain, steps) for _ in range(runs)))
            await asyncio.gather(*(handle.result() for handle in handles))
            return runs * steps / (time.perf_counter() - started)

    return uvloop.run(main())


def one_after_another(place: str, count: int, writes: int) -> Any:
    """Seconds from start to result of runs without steps, and of raw writes."""

    async def main() -> tuple[list[float], float]:
        raw, took = Raw(Path(place)), list[float]()
        async with Perdure(f"{place}/noop-{time.monotonic_ns()}.db") as app:
            for number in range(count + 20):
                started = time.perf_counter()
                await (await app.start(agents.noop)).result()
                if number >= 20:
                    took.append(time.perf_counter() - started)
        floor = raw.seconds(writes)
        raw.close()
        return took, floor

    return uvloop.run(main())


# In the parent


def measure_sequential(options: Options) -> list[Row]:
    ours, floor = list[float](), list[float]()
    for _ in range(options.of(2, 1)):
        with harness.folder() as place:
            a, b = harness.child(
                "speed.py",
                "sequential",
                place=str(place),
                slices=options.of(6, 4),
                steps=options.of(1000, 300),
                writes=300,
            )
        ours, floor = ours + a, floor + b
    micro, floor_micro = [s * 1e6 for s in ours], [s * 1e6 for s in floor]
    scaled = [10_000 * b / a for a, b in zip(ours, floor, strict=True)]
    return [
        Row("sequential step of one run", "µs", micro, "raw write", floor_micro, (Goal(1.5, "ratio"),)),
        Row("  steps/s, as measured", "/s", [1 / s for s in ours], "raw writes", [1 / s for s in floor]),
        Row("  steps/s where raw gives 10,000/s", "/s", scaled, goals=(Goal(7000, at="least"),)),
        *_syncs(options),
    ]


def _syncs(options: Options) -> list[Row]:
    """fdatasync per step, counted by the kernel: the difference between a long run and a short one."""
    if shutil.which("strace") is None:
        return [Row("  fdatasync per step", "", [], note="strace is missing")]
    short, long = 200, options.of(2200, 700)

    def per_step(agent: str) -> float:
        with harness.folder() as place:
            counts = [_traced(place, agent, steps) for steps in (short, long)]
        return (counts[1] - counts[0]) / (long - short)

    both = (Goal(1.05), Goal(1.0, at="least"))
    return [
        Row("  fdatasync per step (strace)", "", [per_step("chain")], goals=both),
        Row("  fdatasync per read step (strace)", "", [per_step("reads")], goals=(Goal(0.2),)),
    ]


def _traced(place: Path, agent: str, steps: int) -> int:
    log = place / f"strace-{agent}-{steps}"
    wrap = ("strace", "-f", "-c", "-e", "trace=fdatasync,fsync", "-o", str(log))
    harness.child("speed.py", "only_steps", wrap=wrap, place=str(place), steps=steps, agent=agent)
    words = [line.split() for line in log.read_text().splitlines()]
    return sum(int(line[3]) for line in words if line and line[-1] in ("fdatasync", "fsync"))


def measure_reads(options: Options) -> list[Row]:
    with harness.folder() as place:
        ours, floor = harness.child(
            "speed.py",
            "sequential",
            place=str(place),
            slices=options.of(8, 3),
            steps=options.of(2000, 500),
            writes=300,
            agent="reads",
        )
    micro, floor_micro = [s * 1e6 for s in ours], [s * 1e6 for s in floor]
    return [Row("step of a chain of reads", "µs", micro, "raw write", floor_micro, (Goal(1.0, "ratio"),))]


def measure_throughput(options: Options) -> list[Row]:
    rows: list[Row] = []
    taken: dict[int, list[tuple[float, float]]] = {runs: [] for runs in SIDE_BY_SIDE}
    for _ in range(options.of(options.rounds, 1)):
        for runs, steps in SIDE_BY_SIDE.items():
            with harness.folder() as place:
                few = max(5, steps // 4) if options.quick else steps
                taken[runs].append(
                    harness.child("speed.py", "side_by_side", place=str(place), runs=runs, steps=few, writes=300)
                )
    for runs, pairs in taken.items():
        goals = (Goal(40_000, at="least"),) if runs == 100 else ()
        label = f"steps/s, {runs:,} runs side by side"
        rows.append(Row(label, "/s", [a for a, _ in pairs], "raw writes", [b for _, b in pairs], goals))
    return rows


def measure_latency(options: Options) -> list[Row]:
    middle, tail, floor = list[float](), list[float](), list[float]()
    for _ in range(options.of(options.rounds, 1)):
        with harness.folder() as place:
            took, raw_s = harness.child(
                "speed.py", "one_after_another", place=str(place), count=options.of(500, 100), writes=300
            )
        middle.append(harness.percentile(took, 0.5) * 1e3)
        tail.append(harness.percentile(took, 0.99) * 1e3)
        floor.append(raw_s * 1e3)
    return [
        Row("start → result of a no-op run, p50", "ms", middle, "raw write", floor, (Goal(0.5),)),
        Row("  the same, p99", "ms", tail, "raw write", floor),
    ]


if __name__ == "__main__":
    harness.serve(
        {
            "sequential": sequential,
            "only_steps": only_steps,
            "side_by_side": side_by_side,
            "many": many,
            "one_after_another": one_after_another,
        }
    )
