"""The real `perdure` in processes of its own, on real files, with real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest

FACT_S = 60.0
"""How long a test waits for a fact before it says that the fact does not come."""

AGENTS = '''
import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from perdure import agent, run, step


@dataclass
class Order:
    item: str
    count: int


@step
async def add(a: int, b: int) -> int:
    print("a step prints")
    return a + b


@step
def slow(seconds: float) -> str:
    """Says that it has begun, then takes its time."""
    with Path("began").open("a") as file:
        file.write(f"{run.attempt}\\n")
    time.sleep(seconds)
    with Path("ended").open("a") as file:
        file.write("x\\n")
    return "slept"


@step(effect="once")
def send(seconds: float) -> str:
    with Path("began").open("a") as file:
        file.write("sent\\n")
    time.sleep(seconds)
    return "sent"


@step
def refuse() -> None:
    if not Path("mended").exists():
        raise ValueError("the target said no")


@agent
async def total(a: int, b: int = 2) -> int:
    return await add(a, b)


@agent
async def nap(seconds: float) -> str:
    await add(1, 2)
    slept = await slow(seconds)
    return slept + str(await add(3, 4))


@agent
async def mail(seconds: float) -> str:
    return await send(seconds)


@agent
async def grumpy() -> str:
    await refuse()
    return "well"


@agent
async def dream(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "woke"


@agent
async def order(what: Order, urgent: bool = False) -> str:
    return f"{what.count} {what.item}{'!' if urgent else ''}"


@agent
async def big() -> list[str]:
    return ["x" * 1000] * 2000


def helper() -> None: ...
'''


@dataclass
class Ended:
    code: int
    out: str
    err: str

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Cli:
    folder: Path
    env: dict[str, str]
    program: list[str] = field(default_factory=lambda: [sys.executable, "-m", "perdure"])
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *words: str, code: int | None = 0, env: dict[str, str] | None = None) -> Ended:
        """Run a command to its end; `code` is what it must exit with, None for anything."""
        process = self.start(*words, env=env)
        out, err = process.communicate(timeout=FACT_S)
        assert "Traceback" not in err or code is None, err
        assert code is None or process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return Ended(process.returncode, out, err)

    def start(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*self.program, *words],
            cwd=self.folder,
            env=self.env | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=FACT_S)
        return Ended(process.returncode, out, err)

    def until(self, fact: Callable[[], object]) -> None:
        deadline = time.monotonic() + FACT_S
        while not fact():
            assert time.monotonic() < deadline, "the fact did not come"
            time.sleep(0.02)

    def began(self, times: int = 1) -> None:
        """Wait until a slow step has begun so often."""
        self.until(lambda: len(self.words("began")) >= times)

    def words(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def show(self, run: str) -> dict[str, Any]:
        return self("show", run, "--json").json()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        # Python takes a change of the same second and the same size for no change.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
        return path


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "COLUMNS"))}
    made = Cli(tmp_path, env)
    made.write("app.py", AGENTS)
    yield made
    for process in made.running:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
