"""The crash kit: real processes that are really killed, and what their store says afterwards.

    with CrashKit([agents_file], folder) as kit:
        kit.run(store, Start("digest", "r1", ["tides"]), faults="step.durable:at=publish:kill")   # dies there
        kit.run(store)                                                                             # a fresh process goes on
        assert kit.look(store, "r1").status == "completed"

C1. A crash is SIGKILL of a process; nothing of it runs afterwards, no `finally`, no buffer. What goes on is another process.
C2. What a run did is read from the store by a process that never executed it, and from the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from perdure.api.app import Perdure
from perdure.api.handle import Handle
from perdure.api.views import EntryView, RunView
from perdure.errors import NotFound
from perdure.testing.crash_job import Job, Start
from perdure.testing.forkserver import Said, Wanted

__all__ = ["CrashKit", "Job", "Look", "Process", "Start"]

T = TypeVar("T")
WAIT_S = 60.0
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Look:
    """A run as the store shows it."""

    view: RunView
    history: list[EntryView]

    @property
    def status(self) -> str:
        return self.view.status

    @property
    def reason(self) -> str | None:
        return self.view.reason

    @property
    def result(self) -> Any:
        return self.view.result

    def step(self, name: str) -> EntryView:
        """The last decision of that name."""
        return next(entry for entry in reversed(self.history) if entry.kind == "step" and entry.name == name)

    def has(self, name: str) -> bool:
        return any(entry.kind == "step" and entry.name == name for entry in self.history)


class Process:
    """A process of the kit."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self._status: int | None = None
        self._ended = threading.Event()

    def __repr__(self) -> str:
        return f"<process {self.pid}, {'ended with ' + str(self._status) if self._ended.is_set() else 'alive'}, log {self.log}>"

    def end(self, status: int) -> None:
        self._status = status
        self._ended.set()

    def wait(self, timeout: float = WAIT_S) -> int:
        """Its exit code, negative for a signal."""
        if not self._ended.wait(timeout):
            raise TimeoutError(f"process {self.pid} has not ended in {timeout:g} s; its log:\n{self.said()}")
        assert self._status is not None
        return self._status

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._send(signal.SIGKILL)
        self.wait()

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    @property
    def frozen(self) -> bool:
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def _send(self, number: signal.Signals) -> None:
        # The fork server reaps it before it says so; a number is not given out again that soon.
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass


class CrashKit:
    """`modules`: Python files with the agents. Logs go to `folder`."""

    def __init__(self, modules: list[str | Path], folder: str | Path) -> None:
        self.modules = [str(module) for module in modules]
        self.folder = Path(folder)
        self._server: subprocess.Popen[bytes] | None = None
        self._started: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._processes: dict[int, Process] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._reader = threading.Thread(target=self._listen, daemon=True, name="crash-kit")

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "perdure.testing.forkserver", *self.modules]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        server = self._server
        assert server is not None
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.close()
        server.wait()
        self._reader.join()
        server.stdout.close()

    # Processes

    def spawn(self, store: str | Path, *starts: Start, **options: Any) -> Process:
        """A fresh process on that store; see `Job` for the options."""
        job = Job(modules=self.modules, store=str(store), starts=list(starts), **options)
        server = self._server
        assert server is not None
        assert server.stdin is not None
        with self._lock:
            self._count += 1
            log = self.folder / f"process-{self._count}.log"
            server.stdin.write(msgspec.json.encode(Wanted(str(log), job)) + b"\n")
            server.stdin.flush()
            pid = self._started.get(timeout=WAIT_S)
            process = self._processes[pid]
            process.log = log
        return process

    def run(self, store: str | Path, *starts: Start, **options: Any) -> Process:
        """The same, to its end: killed, or nothing left to do."""
        process = self.spawn(store, *starts, **options)
        process.wait()
        return process

    def _listen(self) -> None:
        assert self._server is not None
        assert self._server.stdout is not None
        for line in self._server.stdout:
            said = msgspec.json.decode(line, type=Said)
            if said.started:
                self._processes[said.started] = Process(said.started, self.folder)
                self._started.put(said.started)
            else:
                self._processes[said.ended].end(said.status)

    # The store

    def look(self, store: str | Path, id: str) -> Look:
        return self.ask(store, id, _look)

    def ask(self, store: str | Path, id: str, question: Callable[[Handle], Awaitable[T]]) -> T:
        """Ask or steer a run as a client that executes nothing: `kit.ask(store, "r1", Handle.pause)`."""

        async def asking() -> T:
            async with Perdure(str(store), worker=False) as app:
                return await question(app.get(id))

        return asyncio.run(asking())

    def until(self, store: str | Path, id: str, fact: Callable[[Look], bool], timeout: float = WAIT_S) -> Look:
        """Look at the run until that is so."""
        pause = threading.Event()
        look: Look | None = None
        for _ in range(int(timeout / _POLL_S)):
            with contextlib.suppress(NotFound):  # not recorded yet
                if fact(look := self.look(store, id)):
                    return look
            pause.wait(_POLL_S)
        raise TimeoutError(f"run {id} did not come to that in {timeout:g} s: {look}")


async def _look(handle: Handle) -> Look:
    return Look((await handle.status()).view, await handle.history())
