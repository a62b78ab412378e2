"""What one process of a crash test does: serve a store, start runs, until there is nothing left to do or somebody kills it.

`python -m perdure.testing.crash_job JOB_AS_JSON` runs one in a process made by hand; the fork server runs them in forks of itself.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from perdure.api import registry
from perdure.api.app import Perdure
from perdure.base import faults, limits
from perdure.base.world import RealWorld


class Start(msgspec.Struct, frozen=True):
    """A run to be recorded; the same id twice is one run."""

    agent: str
    id: str
    args: list[Any] = []


class Job(msgspec.Struct, frozen=True):
    """`modules` are paths of Python files with agents. `prepare` is `FILE:FUNCTION`, called before anything else: there a test breaks the runtime on
    purpose. `horizon_s`: what becomes ready within that time is waited for. `forever`: serve until killed.
    """

    modules: list[str]
    store: str
    starts: list[Start] = []
    faults: str = ""
    prepare: str = ""
    lease_ttl_s: float = limits.lease_ttl_s
    clock_ahead_s: float = 0.0
    horizon_s: float = 5.0
    forever: bool = False
    worker: bool = True


class AheadWorld(RealWorld):
    """The real world, with another date."""

    __slots__ = ("_ahead_s", "_now")

    def __init__(self, ahead_s: float) -> None:
        super().__init__()
        self._ahead_s = ahead_s
        self._now = RealWorld().now

    def now(self) -> float:
        return self._now() + self._ahead_s


def load(files: list[str]) -> None:
    """Import agents' files by path. Processes that steps run in find them by the same name."""
    for file in files:
        path = Path(file)
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        importlib.import_module(path.stem)


def execute(job: Job) -> int:
    """In this process, to the end."""
    logging.basicConfig(
        level=logging.INFO, format="%(process)d %(levelname)s %(name)s: %(message)s", stream=sys.stderr, force=True
    )
    load(job.modules)
    if job.prepare:
        _function(job.prepare)()
    faults.arm(job.faults)
    asyncio.run(_serve(job))
    return 0


async def _serve(job: Job) -> None:
    world = AheadWorld(job.clock_ahead_s) if job.clock_ahead_s else RealWorld()
    async with Perdure(job.store, worker=job.worker, lease_ttl_s=job.lease_ttl_s, world=world) as app:
        for start in job.starts:
            await app.start(registry.agents[start.agent], *start.args, id=start.id)
        if app.worker is None:
            return
        if job.forever:
            while app.worker.failure is None:
                await asyncio.sleep(limits.poll_s)
            raise app.worker.failure
        await app.worker.wait_idle(job.horizon_s)


def _function(name: str) -> Callable[[], None]:
    file, _, function = name.rpartition(":")
    load([file])
    return cast("Callable[[], None]", getattr(importlib.import_module(Path(file).stem), function))


if __name__ == "__main__":
    code = execute(msgspec.json.decode(sys.argv[1], type=Job))
    sys.stdout.flush()
    os._exit(code)
