"""The agents that are measured."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from perdure import agent, step


@step
async def touch(n: int) -> int:
    return n


@step(effect="read")
async def look(n: int) -> int:
    return n


@agent
async def chain(steps: int) -> int:
    for n in range(steps):
        await touch(n)
    return steps


@agent
async def reads(steps: int) -> int:
    for n in range(steps):
        await look(n)
    return steps


@agent
async def noop() -> int:
    return 1


@agent
async def sleeper(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


# Many runs that begin together


class Gate:
    """Where runs wait until all of them are there. One per process."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.there = 0


gates: list[Gate] = []


@step(effect="read")
async def gate() -> int:
    gates[-1].there += 1
    await gates[-1].opened.wait()
    return 1


@agent
async def gated(steps: int) -> int:
    await gate()
    for n in range(steps):
        await touch(n)
    return steps


# What other processes do


@step
async def clock() -> float:
    """The machine's clock, the same in every process."""
    return time.monotonic()


@agent
async def tell_time() -> float:
    return await clock()


@step
async def leave() -> float:
    """Ends the process in the middle of a step, unless the environment says that this is the one that goes on."""
    if "BENCH_RESUMED" not in os.environ:
        os._exit(0)
    return time.monotonic()


@agent
async def long(steps: int) -> float:
    for n in range(steps):
        await touch(n)
    return await leave()


@step
async def outlive(pid_file: str) -> tuple[int, float]:
    """The first process that runs this stays in it until it is killed; the next one tells the time."""
    started = time.monotonic()
    try:
        with Path(pid_file).open("x", encoding="ascii") as file:  # noqa: ASYNC230  # nothing else runs here
            file.write(str(os.getpid()))
    except FileExistsError:
        return os.getpid(), started
    await asyncio.sleep(3600)
    return os.getpid(), started


@agent
async def survivor(pid_file: str) -> tuple[int, float]:
    return await outlive(pid_file)
