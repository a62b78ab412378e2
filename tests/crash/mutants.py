"""Defects seeded into the runtime, each of a kind that a runtime like this could have. The crash tests must find every one of them."""

from __future__ import annotations

from typing import Any

from perdure.base import limits
from perdure.kernel import activation
from perdure.rules.effect import Redo, Retry
from perdure.store.contract import Appended, Verdict
from perdure.store.sqlite import append, engine, journal, workers
from perdure.worker import effects
from perdure.worker.effects import Effects
from perdure.worker.execution import Execution
from perdure.worker.lease import Lease


def effect_before_w1() -> None:
    """Effects start when they are decided."""
    Effects.add = lambda self, ask: self._execute(ask, 1)


def no_fsync() -> None:
    """Commits are left to the operating system."""
    original = engine.open_connection

    def opened(*args: Any, **options: Any) -> Any:
        db = original(*args, **options)
        db.execute("PRAGMA synchronous = OFF")
        return db

    engine.open_connection = opened


def key_of_attempt() -> None:
    """Each attempt gets a key of its own."""
    original = Effects._execute

    def execute(self: Any, ask: Any, number: int, **options: Any) -> None:
        original(self, ask, number, **options)
        self.running[ask.position].key += f".{number}"

    Effects._execute = execute


def decide_again() -> None:
    """What was decided before the crash is decided again."""
    activation.effective = lambda numbered: numbered[:1]


def retry_once_after_timeout() -> None:
    """An unknown outcome counts as a failure."""
    original = effects.after_failure

    def judged(rule: Any, attempt: int, *rest: Any) -> Any:
        return Retry(0.0) if attempt < 3 else original(rule, attempt, *rest)

    effects.after_failure = judged


def once_is_redone() -> None:
    """Whatever was started is started again."""
    effects.on_recovery = lambda rule, started: Redo()


def no_fence() -> None:
    """The store takes what a buried worker still writes."""

    def naive(db: Any, known: Any, worker: int, writes: Any, now: float) -> Appended:
        for write in writes:
            journal.add(db, write.num, write.epoch, journal.last(db, write.num) + 1, write.records, now)
            append._apply(db, known, write, now)
        return Appended([Verdict.DONE] * len(writes), known.mark)

    append.append = naive
    workers.renew = lambda *_: None


def lease_is_not_looked_at() -> None:
    """A worker trusts that it still is one, until the store refuses a write."""
    Lease.valid = lambda self: True
    workers.renew = lambda *_: None


def progress_is_not_seen() -> None:
    """Deaths add up over a run's whole life."""
    workers._PROGRESS_TAGS = b""


def crash_loop_goes_on() -> None:
    """Deaths are not counted."""
    limits.crashes_without_progress_max = 1_000


def control_comes_later() -> None:
    """A request that waits for the run is heeded after what was left open."""
    original = Execution.open

    def opened(self: Any, journal: Any, pulses: Any, controls: Any) -> None:
        original(self, journal, pulses, [])
        for control in controls:
            self.heed([control])

    Execution.open = opened
