"""One ledger and one fork server for the tests of a process; a book and a store of its own for each case."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure.testing.crash import CrashKit, Look, Process, Start
from perdure.testing.ledger import Book, Ledger

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def ledger(tmp_path_factory):
    with Ledger(tmp_path_factory.mktemp("ledger") / "ledger.jsonl") as ledger:
        yield ledger


@pytest.fixture(scope="session")
def kit(tmp_path_factory):
    with CrashKit([HERE / "agents.py"], tmp_path_factory.mktemp("processes")) as kit:
        yield kit


@dataclass
class Case:
    """One run, `r`, on a store of its own with a book of its own. `broken` names the mutant that all its processes carry."""

    kit: CrashKit
    book: Book
    store: Path
    broken: str = ""

    def spawn(self, *starts: Start, **options: Any) -> Process:
        if self.broken:
            options["prepare"] = f"{HERE / 'mutants.py'}:{self.broken}"
        return self.kit.spawn(self.store, *starts, **options)

    def begin(self, agent: str, *args: Any, **options: Any) -> Process:
        return self.spawn(Start(agent, "r", [self.book.url, *args]), **options)

    def go_on(self, **options: Any) -> Process:
        """A fresh process, to its end; it must end in order."""
        process = self.spawn(**options)
        assert process.wait() == 0, process.said()
        return process

    def look(self) -> Look:
        return self.kit.look(self.store, "r")

    def until(self, fact) -> Look:
        return self.kit.until(self.store, "r", fact)

    def counts(self, name: str = "act") -> tuple[int, int]:
        count = self.book.count(name)
        return count.calls, count.applied


@pytest.fixture
def new_case(kit, ledger, tmp_path):
    """A maker of cases, for tests that need several."""
    numbers = itertools.count()
    return lambda: Case(kit, ledger.book(f"{next(_numbers)}"), tmp_path / f"store-{next(numbers)}.db")


@pytest.fixture
def case(new_case):
    return new_case()


_numbers = itertools.count()
