"""Several processes on one store: handing a run over, taking a dead process's runs over, and doing nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import agents
import harness
import uvloop
from harness import Goal, Options, Raw, Row

from perdure import Perdure

READY_S = 20.0
RAW_WRITES = 200
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


# In the child


def work(store: str) -> None:
    """A worker that serves until its input closes."""

    async def main() -> None:
        async with Perdure(store):
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)

    uvloop.run(main())


def hand_over(store: str, count: int, *, here: bool) -> Any:
    """Seconds from asking for a run to its first step's code: in this process, or in a worker elsewhere."""

    async def main() -> tuple[list[float], float]:
        taken: list[float] = []
        raw = Raw(Path(store).parent)
        floor = raw.seconds(RAW_WRITES)
        async with Perdure(store, worker=here) as app:
            for number in range(count + 5):
                started = time.monotonic()
                handle = await app.start(agents.tell_time)
                told = await handle.result()
                if number >= 5:
                    taken.append(told - started)
                await asyncio.sleep(0.003 * (number % 7))  # at no fixed place in the worker's turns
        return taken, (floor + raw.seconds(RAW_WRITES)) / 2

    return uvloop.run(main())


def start_survivor(store: str, pid_file: str) -> Any:
    async def main() -> None:
        async with Perdure(store, worker=False) as app:
            await app.start(agents.survivor, pid_file, id="survivor")

    uvloop.run(main())
    return True


def survivor_told(store: str) -> Any:
    async def main() -> Any:
        async with Perdure(store, worker=False) as app:
            return await app.get("survivor").result(timeout=60)

    return uvloop.run(main())


# In the parent


@contextmanager
def worker(store: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(harness.HERE / "processes.py"), "work", f'{{"store": "{store}"}}']
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("a worker did not start")
        yield process
    finally:
        process.kill()
        process.communicate()


def measure_dispatch(options: Options) -> list[Row]:
    inside, across, floors = list[float](), list[float](), (list[float](), list[float]())
    for _ in range(options.of(options.rounds, 1)):
        with harness.folder() as place:
            count = options.of(100, 30)
            took, raw_s = harness.child("processes.py", "hand_over", store=str(place / "a.db"), count=count, here=True)
            floors[0].append(raw_s * 1e3)
            inside.append(harness.percentile(took, 0.5) * 1e3)
            with worker(place / "b.db"):
                took, raw_s = harness.child(
                    "processes.py", "hand_over", store=str(place / "b.db"), count=count, here=False
                )
            floors[1].append(raw_s * 1e3)
            across.append(harness.percentile(took, 0.5) * 1e3)
    return [
        Row("start → first step's code, same process, p50", "ms", inside, "raw write", floors[0], (Goal(2.0),)),
        Row("  in another process, p50", "ms", across, "raw write", floors[1], (Goal(10.0),)),
    ]


def measure_takeover(options: Options) -> list[Row]:
    taken = [_takeover_s() for _ in range(options.of(options.rounds, 1))]
    return [Row("takeover after a worker's SIGKILL", "s", taken, goals=(Goal(2.0),))]


def _takeover_s() -> float:
    """From the kill to the interrupted step's code in the other process."""
    with harness.folder() as place:
        store, pid_file = place / "p.db", place / "pid"
        with worker(store), worker(store):
            harness.child("processes.py", "start_survivor", store=str(store), pid_file=str(pid_file))
            until = time.monotonic() + READY_S
            while not (pid_file.exists() and (text := pid_file.read_text())):
                if time.monotonic() > until:
                    raise RuntimeError("nobody took the run up")
                time.sleep(0.01)
            killed = time.monotonic()
            os.kill(int(text), signal.SIGKILL)
            _, told = harness.child("processes.py", "survivor_told", store=str(store))
            return float(told) - killed


def measure_idle(options: Options) -> list[Row]:
    """`perdure worker` itself, with nothing to do."""
    seconds = options.of(10, 3)
    with harness.folder() as place:
        command = ["-m", "perdure.cli.main", "worker", str(harness.HERE / "agents.py"), "--store", str(place / "p.db")]
        process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            if "serves" not in line:
                raise RuntimeError(f"perdure worker did not start: {line}")
            time.sleep(1.0)
            before = _cpu_s(process.pid)
            time.sleep(seconds)
            used = (_cpu_s(process.pid) - before) / seconds * 100
            rss = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        finally:
            process.kill()
            process.communicate()
    return [
        Row("idle worker: memory", "MB", [rss / 1e6], goals=(Goal(45.0),)),
        Row("idle worker: processor", "% of a core", [used]),
    ]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


if __name__ == "__main__":
    harness.serve(
        {
            "work": work,
            "hand_over": hand_over,
            "start_survivor": start_survivor,
            "survivor_told": survivor_told,
        }
    )
