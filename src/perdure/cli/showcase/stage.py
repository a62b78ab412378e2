"""Everything there is to see, from outside: the run through a client of the store, its effects by the ledger's file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from perdure.api.views import EntryView, RunView
from perdure.cli.showcase.agent import QUESTIONS, TRAVELLERS
from perdure.cli.showcase.counts import Counts

SLEEP: Final = "sleep"
PLAN: Final = (*(f"look up {q}" for q in QUESTIONS), "book ferry", SLEEP, *(f"tell {name}" for name in TRAVELLERS))
"""The rows of the screen, in the order in which the agent asks for them."""

State: TypeAlias = Literal["ahead", "open", "left", "asleep", "recorded"]


@dataclass
class WorkerLife:
    number: int
    pid: int
    killed: str | None = None  # where it was when it was killed


@dataclass(frozen=True)
class Line:
    at_s: float
    style: str
    text: str


@dataclass
class Stage:
    store: str
    run: RunView | None = None
    history: list[EntryView] = field(default_factory=list[EntryView])
    counts: Counts = field(default_factory=Counts)
    workers: list[WorkerLife] = field(default_factory=list[WorkerLife])
    recorded_by: dict[str, int] = field(default_factory=dict[str, int])  # row -> number of the worker that was there
    story: list[Line] = field(default_factory=list[Line])
    seconds: float = 0.0
    now: float = 0.0
    done: bool = False

    @property
    def status(self) -> str | None:
        return self.run.status if self.run is not None else None

    def alive(self) -> WorkerLife | None:
        return self.workers[-1] if self.workers and self.workers[-1].killed is None else None

    def executed(self, *rows: str) -> bool:
        return {*rows} <= self._recorded()

    def note_records(self) -> None:
        for row in self._recorded():
            self.recorded_by.setdefault(row, len(self.workers))

    def _recorded(self) -> set[str]:
        steps = {label(entry) for entry in self.history if entry.kind == "step" and entry.state == "executed"}
        return steps | {SLEEP} if self._has("timer") else steps

    def _has(self, kind: str) -> bool:
        return any(entry.kind == kind for entry in self.history)

    def state(self, row: str) -> State:
        if row in self.recorded_by:
            return "recorded"
        if row == SLEEP:
            return "asleep" if self.executed("book ferry") else "ahead"
        if row not in {label(entry) for entry in self.history}:
            return "ahead"
        return "open" if self.alive() else "left"

    def sleep_left_s(self) -> float | None:
        if self.run is None or self.run.ready_at is None:
            return None
        return max(0.0, datetime.fromisoformat(self.run.ready_at).timestamp() - self.now)

    # The counts at the end

    def effects(self) -> set[str]:
        """What the run decided to do to the world, by its own history."""
        return {label(entry) for entry in self.history if entry.effect == "idempotent"}

    def reads(self) -> set[str]:
        return {label(entry) for entry in self.history if entry.effect == "read"}

    def good(self) -> bool:
        """Nothing lost, nothing doubled, by the ledger; and the run has its result, with everything in it."""
        effects, expected = self.effects(), {row for row in PLAN if row.startswith(("book", "tell"))}
        result: list[str] = self.run.result if self.run is not None and self.run.result else []
        return (
            self.done
            and self.status == "completed"
            and effects == expected
            and sorted(result) == sorted(f"{what}: done" for what in expected)
            and not self.counts.lost(effects)
            and not self.counts.doubled(effects)
        )


def label(entry: EntryView) -> str:
    """`tell Ada`, as the ledger names it too."""
    first = entry.args[0][0] if entry.kind == "step" and entry.args and entry.args[0] else ""
    return f"{(entry.name or '').replace('_', ' ')} {first}".strip()
