"""Zombies: workers that are frozen beyond their lease, replaced, and thawed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.conftest import Case

    from perdure.testing.crash import Process

LEASE_S = 1.0
STEPS = 3
TRIES = 5


class Zombie(NamedTuple):
    """Where a worker freezes in the second of three effects, and what is counted when its successor and itself are done.

    `how`: a fault, or where its call is. `late` is what the thawed zombie's own request adds.
    """

    how: str
    rule: str
    calls: int
    applied: int
    ending: str = "completed"
    late: tuple[int, int] = (0, 0)


ZOMBIES = (
    # Its write is not there yet: the successor repeats the first effect by its rule, and the zombie's write is refused.
    Zombie("writer.before_commit:nth=2:stop", "idempotent", 4, 3),
    Zombie("append.before_begin:nth=2:stop", "idempotent", 4, 3),
    Zombie("step.settled:at=act:nth=2:stop", "idempotent", 4, 3),
    Zombie("step.settled:at=act:nth=2:stop", "probe", 3, 3),
    Zombie("step.settled:at=act:nth=2:stop", "once", 2, 2, "in_doubt"),
    # Its decision is durable and nothing has begun: the successor does it, and the zombie starts nothing (L2).
    Zombie("writer.after_commit:nth=2:stop", "idempotent", 3, 3),
    Zombie("append.after_commit:nth=2:stop", "idempotent", 3, 3),
    # Its effect is applied, the answer waits for it.
    Zombie("applied", "idempotent", 4, 3),
    Zombie("applied", "probe", 3, 3),
    Zombie("applied", "once", 2, 2, "in_doubt"),
    # Its request is still under way when the successor is done: a late keyed effect has the same key; `once` is in doubt and says so.
    Zombie("under way", "idempotent", 3, 3, late=(1, 0)),
    Zombie("under way", "once", 1, 1, "in_doubt", late=(1, 1)),
)


def play(new_case: Callable[[], Case], zombie: Zombie, style: str, broken: str = "") -> None:
    """Freeze a worker, let a successor end the run, and thaw the zombie: it must notice, and must not have changed anything."""
    for _ in range(TRIES):
        case = new_case()
        case.broken = broken
        frozen = begin(case, zombie, style)
        freeze(case, zombie, frozen)
        if not holds_the_write_lock(frozen, case.store):
            outlive(case, zombie, frozen)
            return
        frozen.kill()  # a heartbeat was being written; nobody can replace it then, and that is another test
    raise AssertionError(f"in {TRIES} tries it was always frozen in the middle of a commit")


def begin(case: Case, zombie: Zombie, style: str) -> Process:
    options = {}
    if zombie.how == "applied":
        case.book.plan("act", after="hold", nth=2)
    elif zombie.how == "under way":
        case.book.plan("act", before="hold", nth=2)
    else:
        options["faults"] = zombie.how
    if zombie.rule == "once":
        case.book.without_dedupe("act")
    return case.begin("steps", STEPS, zombie.rule, style, lease_ttl_s=LEASE_S, forever=True, **options)


def freeze(case: Case, zombie: Zombie, worker: Process) -> None:
    if "stop" in zombie.how:
        case.until(lambda _: worker.frozen)
        return
    case.book.wait("act", "applied" if zombie.how == "applied" else "arrived", 2)
    worker.freeze()
    case.until(lambda _: worker.frozen)


def holds_the_write_lock(worker: Process, store: Path) -> bool:
    """Whether SQLite's lock for writers, byte 120 of the shared index, is its own."""
    index = store.with_name(store.name + "-shm").stat().st_ino
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(
        (lock[3], lock[4]) == ("WRITE", str(worker.pid))
        and lock[5].endswith(f":{index}")
        and int(lock[6]) <= 120 <= int(lock[7])
        for lock in locks
        if "->" not in lock
    )


def outlive(case: Case, zombie: Zombie, frozen: Process) -> None:
    successor = case.spawn(lease_ttl_s=LEASE_S, forever=True)
    case.until(lambda look: look.status in ("completed", "parked"))
    found = case.look()
    assert (found.reason or found.status) == zombie.ending
    assert case.counts() == (zombie.calls, zombie.applied), found
    late_calls, late_applied = zombie.late
    case.book.release("act")  # what was sent long ago arrives only now
    case.book.wait("act", "called", zombie.calls + late_calls)
    frozen.thaw()
    case.until(lambda _: "lost its lease" in frozen.said() or case.counts()[0] > zombie.calls + late_calls)
    successor.kill()
    frozen.kill()
    assert case.counts() == (zombie.calls + late_calls, zombie.applied + late_applied)
    after = case.look()
    assert after.history == found.history
    assert after.result == found.result
    assert all(slip.applied <= 1 for slip in case.book.slips("act"))
