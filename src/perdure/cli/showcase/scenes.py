"""The play: start a worker, kill it where it hurts, start another; look on through the store and the ledger's file.

Every scene waits for a fact (a record, a line of the ledger), never for a time; pauses for the audience come after the fact.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from perdure.api.app import Perdure
from perdure.api.handle import Handle
from perdure.api.views import EntryView, RunView
from perdure.base.world import RealWorld
from perdure.cli.showcase import agent, ledger

PATIENCE_S: Final = 20.0
LOOK_EVERY_S: Final = 0.08
TAIL_LINES: Final = 12


class PlayFailed(Exception):
    """A fact the play waits for did not come."""


@dataclass
class WorkerLife:
    number: int
    pid: int
    killed: str | None = None  # where it was when it was killed


@dataclass
class Stage:
    """Everything there is to see. Counted from outside: the store by a client, the ledger from its file."""

    run: RunView | None = None
    history: list[EntryView] = field(default_factory=list)
    counts: ledger.Counts = ledger.Counts()
    workers: list[WorkerLife] = field(default_factory=list)
    recorded_by: dict[str, int] = field(default_factory=dict)  # step -> the worker that was there
    story: list[tuple[float, str, str]] = field(default_factory=list)  # when, style, text
    seconds: float = 0.0
    done: bool = False

    def alive(self) -> WorkerLife | None:
        return self.workers[-1] if self.workers and self.workers[-1].killed is None else None

    def executed(self, *labels: str) -> bool:
        return {*labels} <= {label(entry) for entry in self.history if entry.state == "executed"}

    def asleep(self) -> bool:
        return self.run is not None and self.run.status == "waiting"

    def wanted(self) -> set[str]:
        """What the run decided to do to the world, by its own history."""
        return {label(entry) for entry in self.history if entry.effect == "idempotent"}


def label(entry: EntryView) -> str:
    """`tell Ada`, as the ledger names it too."""
    verb = (entry.name or "").replace("look_up", "look up")
    first = entry.args[0][0] if entry.kind == "step" and entry.args and entry.args[0] else ""
    return f"{verb} {first}".strip()


class Play:
    def __init__(self, store: str, folder: Path, on_change: Callable[[Stage], None]) -> None:
        self.stage = Stage()
        self._store = store
        self._folder = folder
        self._file = folder / "ledger.ndjson"
        self._log = folder / "stderr.txt"
        self._on_change = on_change
        self._world = RealWorld()
        self._began = self._world.monotonic()
        self._port = 0
        self._ledger: Process | None = None
        self._worker: Process | None = None
        self._app = Perdure(store, worker=False)
        self._handle: Handle | None = None

    async def __aenter__(self) -> Play:
        self._ledger = await self._process("ledger", str(self._file))
        self._port = int(await self._line(self._ledger))
        await self._app.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (self._worker, self._ledger):
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
        await self._app.__aexit__(kind, exc, trace)

    # The scenes

    async def scenes(self) -> None:
        self._say("bold", f"a ledger process and a store are there; the agent is {Path(agent.__file__).name}")
        await ledger.hold(self._port, ["book ferry"])
        await self._start_worker()
        self._handle = await self._app.start(agent.trip, agent.NIGHT_S)
        self._say("", "run started: three look-ups side by side, then a booking")
        await self._until(lambda s: "book ferry" in s.counts.applied, "the booking on the ledger")
        self._say("yellow", "the ledger has booked, its answer is still on the way…")
        await self._pause(1.2)
        await self._kill("in the middle of the booking")
        await ledger.hold(self._port, [])
        await self._pause(1.2)

        await self._start_worker()
        await self._until(lambda s: s.executed("book ferry"), "the booking's record")
        self._say("green", "same key again: the ledger answers, and books nothing twice")
        await self._until(lambda s: s.asleep(), "the agent's sleep")
        self._say("", "the agent sleeps: a row in the store, no process needed")
        await self._pause(1.0)
        await self._kill("during the sleep")
        await self._pause(1.2)

        await ledger.hold(self._port, ["tell Cleo", "tell Dov"])
        await self._start_worker()
        await self._until(lambda s: s.executed("tell Ada", "tell Ben"), "two of four messages recorded")
        await self._until(lambda s: {"tell Cleo", "tell Dov"} <= {*s.counts.applied}, "four messages on the ledger")
        self._say("yellow", "woken on time; two messages are recorded, two are out without an answer…")
        await self._pause(1.0)
        await self._kill("between two messages")
        await ledger.hold(self._port, [])
        await self._pause(1.2)

        await self._start_worker()
        await self._until(lambda s: s.run is not None and s.run.status == "completed", "the end of the run")
        self._say("bold green", "the run is completed")
        self.stage.done = True
        await self._look()

    # What a scene does

    async def _start_worker(self) -> None:
        number = len(self.stage.workers) + 1
        self._worker = await self._process("worker", self._store)
        self.stage.workers.append(WorkerLife(number, self._worker.pid))
        self._say("cyan", f"worker {number} starts, pid {self._worker.pid}")
        await self._line(self._worker)

    async def _kill(self, where: str) -> None:
        assert self._worker is not None
        life = self.stage.workers[-1]
        self._worker.send_signal(signal.SIGKILL)
        await self._worker.wait()
        life.killed = where
        self._say("bold red", f"kill -9 {life.pid}: worker {life.number} dies {where}")

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

    async def _pause(self, seconds: float) -> None:
        """For the audience."""
        until = self._world.monotonic() + seconds
        while self._world.monotonic() < until:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        stage = self.stage
        if self._handle is not None:
            stage.history = await self._handle.history()
            stage.run = (await self._handle.status()).view
        stage.counts = ledger.counts(self._file)
        for entry in stage.history:
            if entry.state == "executed" and entry.kind in ("step", "timer"):
                stage.recorded_by.setdefault(label(entry), len(stage.workers))
        stage.seconds = self._world.monotonic() - self._began
        self._on_change(stage)

    def _say(self, style: str, text: str) -> None:
        self.stage.seconds = self._world.monotonic() - self._began
        self.stage.story.append((self.stage.seconds, style, text))
        self._on_change(self.stage)

    # Processes

    async def _process(self, module: str, argument: str) -> Process:
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"perdure.cli.showcase.{module}",
                argument,
                stdin=PIPE,  # its end tells them that we are gone
                stdout=PIPE,
                stderr=log,
                env={**_environment(), ledger.ADDRESS: str(self._port)},
            )

    async def _line(self, process: Process) -> str:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise PlayFailed(f"a process of the demo did not start{self._tail()}")
        return line.decode().strip()

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return "\n" + "\n".join(lines) if lines else ""


def _environment() -> dict[str, str]:
    """Ours, without faults meant for somebody else."""
    return {name: value for name, value in os.environ.items() if name != "PERDURE_FAULTS"}
