"""The store against a small model: appends, claims, burials and requests in any order."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.store.support import make

from perdure.base.status import ENDED, ControlKind, Status
from perdure.errors import Conflict, LeaseLost
from perdure.store.contract import RunChange, RunWrite, Verdict, Where
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.conformance.kit import StillWorld, executed, new, who

EXAMPLES = 15
STEPS = 40


@dataclass
class Model:
    """What a run should be."""

    num: int
    status: str = "queued"
    worker: int | None = None
    epoch: int = 0
    journal: list[bytes] = field(default_factory=list)
    ready: bool = True
    asked: list[ControlKind] = field(default_factory=list)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.world = StillWorld()
        self.stores: list[SqliteStore] = []
        self.runs: dict[str, Model] = {}
        self.living: set[int] = set()
        self.buried: set[int] = set()

    def do(self, verb: Any) -> Any:
        return self.loop.run_until_complete(verb)

    def teardown(self) -> None:
        for store in self.stores:
            self.do(store.close())
        self.loop.close()
        self.folder.cleanup()

    @initialize()
    def open(self) -> None:
        path = Path(self.folder.name) / "p.db"
        self.stores = [make(path, self.world), make(path, self.world)]
        for store in self.stores:
            self.do(store.open(worker=False))
        self.living = {self.do(store.register(who("w"), ttl_s=1e9)) for store in self.stores}

    store = st.integers(0, 1)
    pick = st.integers(0, 5)

    def a_worker(self, pick: int) -> int:
        workers = sorted(self.living | self.buried)
        return workers[pick % len(workers)]

    def a_run(self, pick: int) -> tuple[str, Model]:
        names = sorted(self.runs)
        name = names[pick % len(names)]
        return name, self.runs[name]

    @rule(store=store, id=st.sampled_from("abcd"))
    def create(self, store: int, id: str) -> None:
        made, added = self.do(self.stores[store].create(new(id)))
        assert added == (id not in self.runs)
        self.runs.setdefault(id, Model(made.run.num))

    @rule(store=store)
    def register(self, store: int) -> None:
        worker = self.do(self.stores[store].register(who("w"), ttl_s=1e9))
        assert worker not in self.living | self.buried
        self.living.add(worker)

    @precondition(lambda self: self.runs)
    @rule(store=store, worker=pick, limit=st.integers(1, 3))
    def claim(self, store: int, worker: int, limit: int) -> None:
        number = self.a_worker(worker)
        free = [name for name, run in self.runs.items() if run.worker is None and run.ready]
        try:
            taken = self.do(self.stores[store].claim(number, ["a"], limit=limit))
        except LeaseLost:
            assert number in self.buried
            return
        assert len(taken) == (0 if number in self.buried else min(limit, len(free)))
        for claimed in taken:
            run = self.runs[claimed.run.id]
            assert claimed.run.id in free
            assert [row.kind for row in claimed.controls] == run.asked
            run.worker, run.status, run.ready, run.epoch = number, "running", False, run.epoch + 1
            assert claimed.run.epoch == run.epoch

    @precondition(lambda self: self.runs)
    @rule(
        store=store,
        worker=pick,
        which=pick,
        lag=st.sampled_from([0, 0, 0, 1]),
        skip=st.sampled_from([0, 0, 0, 0, -1, 1]),
        n=st.integers(1, 3),
        then=st.sampled_from([None, None, None, "waiting", "paused", "completed", "failed"]),
    )
    def append(self, store: int, worker: int, which: int, lag: int, skip: int, n: int, then: str | None) -> None:
        number = self.a_worker(worker)
        _, run = self.a_run(which)
        epoch, seq = run.epoch - lag, len(run.journal) + 1 + skip
        at = len(self.runs) * 1_000 + len(run.journal) * 10  # other bytes than any record before
        records = [executed(at + k) for k in range(n)]
        change = None if then is None else RunChange(Status(then), release=True)
        write = RunWrite(run.num, epoch, seq, records, change)
        try:
            (verdict,) = self.do(self.stores[store].append(number, [write])).verdicts
        except LeaseLost:
            assert number in self.buried
            return
        assert number in self.living
        held = run.worker == number and run.epoch == epoch
        if not held:
            assert verdict is Verdict.FENCED
        elif skip:
            assert verdict is Verdict.CONFLICT
        else:
            assert verdict is Verdict.DONE
            run.journal += records
            if then is not None:
                run.status, run.worker = then, None
                run.ready = bool(run.asked) and then not in ENDED
                run.asked = [] if then in ENDED else run.asked

    @rule(store=store, worker=pick)
    def bury(self, store: int, worker: int) -> None:
        number = self.a_worker(worker)
        ids = self.do(self.stores[store].bury(number, dead=True))
        if number in self.buried:
            assert ids is None
            return
        held = {name for name, run in self.runs.items() if run.worker == number}
        assert set(ids) == held
        for name in held:
            run = self.runs[name]
            run.worker, run.status, run.ready = None, "queued", True
        self.living.discard(number)
        self.buried.add(number)
        if not self.living:
            self.living.add(self.do(self.stores[store].register(who("w"), ttl_s=1e9)))

    @precondition(lambda self: self.runs)
    @rule(store=store, which=pick, kind=st.sampled_from([ControlKind.PAUSE, ControlKind.RESUME, ControlKind.RETRY]))
    def control(self, store: int, which: int, kind: ControlKind) -> None:
        name, run = self.a_run(which)
        try:
            row = self.do(self.stores[store].control(name, kind, body=b"", by="me"))
        except Conflict:
            assert run.status in ENDED or (kind is not ControlKind.PAUSE and run.worker is None) or kind == "retry"
            if kind is ControlKind.RESUME and run.status not in ENDED:
                assert ControlKind.PAUSE not in run.asked
            return
        self._asked(run, kind)
        assert row.status == run.status

    def _asked(self, run: Model, kind: ControlKind) -> None:
        paused = run.status == "paused"
        if kind is ControlKind.RESUME:
            run.asked = [asked for asked in run.asked if asked is not ControlKind.PAUSE]
        if run.worker is not None:
            run.asked.append(kind)
        elif kind is ControlKind.PAUSE:
            run.status, run.ready = "paused", run.ready and paused
        elif kind is ControlKind.RETRY or paused:
            run.status, run.ready = "queued", True
            run.asked.append(kind)

    @invariant()
    def rows_agree(self) -> None:
        if not self.stores:
            return
        for store in self.stores:
            rows = {row.id: row for row in self.do(store.runs(Where(), limit=100))}
            assert rows.keys() == self.runs.keys()
            for name, run in self.runs.items():
                row = rows[name]
                assert (row.status, row.worker, row.epoch) == (run.status, run.worker, run.epoch)
                assert row.seq == len(run.journal)
                assert (row.ready_at is not None) == run.ready
                assert self.do(store.journal(run.num)) == run.journal


StoreMachine.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)


def test_the_store_agrees_with_the_model() -> None:
    """Two store objects on one file, and a model in memory: rows, journals and verdicts are the same."""
    StoreMachine.TestCase().runTest()
