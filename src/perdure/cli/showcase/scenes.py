"""The play: start a worker, kill it where it hurts, start another; look on through the store and the ledger's file.

Every scene waits for a fact (a record, a line of the ledger), never for a time; pauses for the audience come after it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from perdure.api.app import Perdure
from perdure.api.handle import Handle
from perdure.base.world import RealWorld
from perdure.cli.showcase import agent, counts
from perdure.cli.showcase.stage import Line, Stage, WorkerLife
from perdure.testing.ledger import Book, Ledger

PATIENCE_S: Final = 20.0
LOOK_EVERY_S: Final = 0.08
TAIL_LINES: Final = 12


@dataclass(frozen=True)
class Pace:
    """How long the agent sleeps, and how long the audience has to look."""

    night_s: float = 5.0
    look_s: float = 1.2


PACE: Final = Pace()


class PlayFailed(Exception):
    """A fact the play waits for did not come."""


class Play:
    def __init__(self, store: str, folder: Path, on_change: Callable[[Stage], None], pace: Pace = PACE) -> None:
        self.stage = Stage(store)
        self._store = store
        self._log = folder / "stderr.txt"
        self._on_change = on_change
        self._pace = pace
        self._world = RealWorld()
        self._began = self._world.monotonic()
        self._ledger = Ledger(folder / "ledger.jsonl")
        self._book: Book | None = None
        self._worker: Process | None = None
        self._app = Perdure(store, worker=False)
        self._handle: Handle | None = None

    async def __aenter__(self) -> Self:
        await self._app.__aenter__()
        self._book = self._ledger.start().book("demo")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None and self._worker.returncode is None:
            self._worker.kill()
            await self._worker.wait()
        self._ledger.stop()
        await self._app.__aexit__(kind, exc, trace)

    # The scenes

    async def scenes(self) -> None:
        self._hold("book ferry", "tell Cleo", "tell Dov")
        await self._booking()
        await self._sleeping()
        await self._telling()
        await self._start_worker()
        await self._until(lambda s: s.status == "completed", "the end of the run")
        self._say("bold green", "the run is completed")
        self.stage.done = True
        await self._look()

    async def _booking(self) -> None:
        await self._start_worker()
        self._handle = await self._app.start(agent.trip, self._pace.night_s)
        self._say("", "a run starts: three look-ups side by side, then a booking")
        await self._until(lambda s: "book ferry" in s.counts.applied, "the booking on the ledger")
        self._say("yellow", "the ledger has booked; its answer is still on the way …")
        await self._pause()
        await self._kill("in the middle of the booking")

    async def _sleeping(self) -> None:
        await self._start_worker()
        await self._until(lambda s: s.executed("book ferry"), "the booking's record")
        self._say("green", "asked again with the same key: the ledger books nothing twice")
        await self._until(lambda s: s.status == "waiting", "the agent's sleep")
        self._say("", "the agent sleeps: a row in the store, nothing in memory")
        await self._pause()
        await self._kill("while the agent sleeps")

    async def _telling(self) -> None:
        await self._start_worker()
        await self._until(lambda s: s.executed("tell Ada", "tell Ben"), "the first two messages' records")
        await self._until(lambda s: {"tell Cleo", "tell Dov"} <= {*s.counts.applied}, "all messages on the ledger")
        self._say("yellow", "woken on time; two messages recorded, two sent without an answer …")
        await self._pause()
        await self._kill("between the messages")

    # What a scene does

    def _hold(self, *names: str) -> None:
        """The first call of each is applied and not answered: so a worker dies in the middle of it, for certain."""
        assert self._book is not None
        for name in names:
            self._book.plan(name, after="hold")

    async def _start_worker(self) -> None:
        number = len(self.stage.workers) + 1
        assert self._book is not None
        with self._log.open("ab") as log:
            self._worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "perdure.cli.main", "worker", agent.__name__, "--store", self._store),
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
            )
        self.stage.workers.append(WorkerLife(number, self._worker.pid))
        self._say("cyan", f"perdure worker: number {number}, process {self._worker.pid}")

    def _environment(self) -> dict[str, str]:
        """Ours, without faults meant for somebody else."""
        assert self._book is not None
        kept = {name: value for name, value in os.environ.items() if name != "PERDURE_FAULTS"}
        return kept | {agent.LEDGER: self._book.url}

    async def _kill(self, where: str) -> None:
        assert self._worker is not None
        life = self.stage.workers[-1]
        self._worker.kill()
        await self._worker.wait()
        life.killed = where
        self._say("bold red", f"kill -9 {life.pid}: worker {life.number} is dead, {where}")
        await self._pause()

    async def _until(self, fact: Callable[[Stage], bool], what: str) -> None:
        until = self._world.monotonic() + PATIENCE_S
        await self._look()
        while not fact(self.stage):
            if self._worker is not None and self._worker.returncode is not None:
                raise PlayFailed(f"the worker ended by itself ({self._worker.returncode}) before {what}{self._tail()}")
            if self._world.monotonic() > until:
                raise PlayFailed(f"{what} did not come within {PATIENCE_S:g} s{self._tail()}")
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look()

    async def _pause(self) -> None:
        """For the audience."""
        until = self._world.monotonic() + self._pace.look_s
        while self._world.monotonic() < until:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        stage = self.stage
        if self._handle is not None:
            stage.history = await self._handle.history()
            stage.run = (await self._handle.status()).view
        stage.counts = counts.read(self._ledger.file)
        stage.note_records()
        self._changed()

    def _say(self, style: str, text: str) -> None:
        self._changed()
        self.stage.story.append(Line(self.stage.seconds, style, text))
        self._changed()

    def _changed(self) -> None:
        self.stage.seconds = self._world.monotonic() - self._began
        self.stage.now = self._world.now()
        self._on_change(self.stage)

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return "\n" + "\n".join(lines) if lines else ""
