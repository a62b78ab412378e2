"""What every measure needs: children, rounds, ratios with their spread, and the raw floor.

Absolute figures drift by a factor of two from hour to hour. So whatever is compared is measured side by side: the
rounds are interleaved, a ratio is taken within each round, and the table shows the ratios' median and middle half.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

HERE = Path(__file__).resolve().parent
TIMES = "\N{MULTIPLICATION SIGN}"
RAW_FILE_BYTES = 1024 * 1024
RAW_BLOCK = 4096
CHILD_S = 400.0
MEMORY = Path("/dev/shm")  # noqa: S108  # each measure makes a folder of its own in it

Task: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Options:
    quick: bool = False
    rounds: int = 5

    def of(self, full: int, quick: int) -> int:
        """A size: the full one, or the one of --quick."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Goal:
    limit: float
    of: Literal["ours", "ratio"] = "ours"
    at: Literal["most", "least"] = "most"

    def met(self, row: Row) -> bool:
        value = row.ours if self.of == "ours" else row.ratio
        if value is None:
            return False
        return value <= self.limit if self.at == "most" else value >= self.limit

    def text(self) -> str:
        return f"{'≤' if self.at == 'most' else '≥'} {number(self.limit)}{TIMES if self.of == 'ratio' else ''}"


@dataclass(frozen=True)
class Row:
    """One line of the table. `samples` and `beside` hold one value for each round, in the same order."""

    measure: str
    unit: str
    samples: list[float]
    against: str = ""
    beside: list[float] = field(default_factory=list)
    goals: tuple[Goal, ...] = ()
    note: str = ""

    @property
    def ours(self) -> float | None:
        return statistics.median(self.samples) if self.samples else None

    @property
    def other(self) -> float | None:
        return statistics.median(self.beside) if self.beside else None

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.samples, self.beside, strict=True) if b] if self.beside else []

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def met(self) -> bool | None:
        return all(goal.met(self) for goal in self.goals) if self.goals else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "unit": self.unit,
            "ours": self.ours,
            "iqr": spread(self.samples),
            "against": self.against,
            "beside": self.other,
            "ratio": self.ratio,
            "ratio_iqr": spread(self.ratios),
            "goals": [goal.text() for goal in self.goals],
            "met": self.met,
            "rounds": len(self.samples),
            "note": self.note,
        }


def spread(values: list[float]) -> tuple[float, float] | None:
    """The middle half."""
    if len(values) < 2:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def number(value: float | None) -> str:
    if value is None:
        return "-"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 or not size else f"{value:.3f}"


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# Children: every measurement runs in a process of its own, so that none warms or burdens another


def child(script: str, task: str, *, wrap: tuple[str, ...] = (), **arguments: Any) -> Any:
    """Call `task` of a script of this folder in a fresh process; what it returns."""
    command = [*wrap, sys.executable, str(HERE / script), task, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_S, check=False)
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    if not answers:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise RuntimeError(f"{script} {task} {arguments} ended with {done.returncode} and no answer:\n{said}")
    return json.loads(answers[-1].removeprefix("ANSWER "))


def answer(value: Any) -> None:
    print("ANSWER " + json.dumps(value), flush=True)


def serve(tasks: dict[str, Task]) -> None:
    """The child's side."""
    value = tasks[sys.argv[1]](**json.loads(sys.argv[2]))
    if value is not None:
        answer(value)


@contextmanager
def folder(*, in_memory: bool = False) -> Iterator[Path]:
    """On the file system of the working directory, the one that is measured; or where the disk does not matter."""
    place = MEMORY if in_memory and MEMORY.is_dir() else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=place) as name:
        yield Path(name)


# The floor


class Raw:
    """4 KiB overwrites of a file that is there, each followed by fdatasync: what a durable step costs at least."""

    def __init__(self, place: Path) -> None:
        self._fd = os.open(place / "raw", os.O_RDWR | os.O_CREAT)
        os.pwrite(self._fd, bytes(RAW_FILE_BYTES), 0)
        os.fsync(self._fd)
        self._at = 0

    def seconds(self, writes: int) -> float:
        """Seconds per write."""
        block = os.urandom(RAW_BLOCK)
        started = time.perf_counter()
        for _ in range(writes):
            os.pwrite(self._fd, block, self._at)
            os.fdatasync(self._fd)
            self._at = (self._at + RAW_BLOCK) % RAW_FILE_BYTES
        return (time.perf_counter() - started) / writes

    def close(self) -> None:
        os.close(self._fd)
