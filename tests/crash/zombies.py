"""Zombies: workers that are frozen beyond their lease, replaced, and thawed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.crash.conftest import Case

    from perdure.testing.crash import Process

LEASE_S = 1.0
STEPS = 3


class Zombie(NamedTuple):
    """Where a worker freezes in the second of three effects, and what is counted when its successor and itself are done.

    `how`: a fault, or what the ledger does to the call. `late` is what the thawed zombie's own request adds.
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
    Zombie("freeze", "idempotent", 4, 3),
    Zombie("freeze", "probe", 3, 3),
    Zombie("freeze", "once", 2, 2, "in_doubt"),
    # Its request is still under way when the successor is done: a late keyed effect has the same key; `once` is in doubt and says so.
    Zombie("hold", "idempotent", 3, 3, late=(1, 0)),
    Zombie("hold", "once", 1, 1, "in_doubt", late=(1, 1)),
)


def begin(case: Case, zombie: Zombie, style: str) -> Process:
    options = {}
    if zombie.how == "freeze":
        case.book.plan("act", after="freeze", nth=2)
    elif zombie.how == "hold":
        case.book.plan("act", before="hold", nth=2)
    else:
        options["faults"] = zombie.how
    if zombie.rule == "once":
        case.book.without_dedupe("act")
    return case.begin("steps", STEPS, zombie.rule, style, lease_ttl_s=LEASE_S, forever=True, **options)


def freeze(case: Case, zombie: Zombie, frozen: Process) -> None:
    if zombie.how == "hold":
        case.book.wait("act", "arrived", 2)
        case.until(lambda look: len([entry for entry in look.history if entry.name == "act"]) == 2)
        frozen.freeze()
    else:
        case.until(lambda _: frozen.frozen)


def outlive(case: Case, zombie: Zombie, frozen: Process) -> None:
    """A successor ends the run; then the zombie comes back, must notice, and must not have changed anything."""
    successor = case.spawn(lease_ttl_s=LEASE_S, forever=True)
    case.until(lambda look: look.status in ("completed", "parked"))
    found = case.look()
    assert (found.reason or found.status) == zombie.ending
    assert case.counts() == (zombie.calls, zombie.applied), found
    if zombie.how == "hold":  # the request was sent long ago, and arrives only now
        case.book.release("act")
        case.book.wait("act", "called", zombie.calls + 1)
    frozen.thaw()
    late_calls, late_applied = zombie.late
    case.until(lambda _: "lost its lease" in frozen.said() or case.counts()[0] > zombie.calls + late_calls)
    successor.kill()
    frozen.kill()
    assert case.counts() == (zombie.calls + late_calls, zombie.applied + late_applied)
    after = case.look()
    assert after.history == found.history
    assert after.result == found.result
    assert all(slip.applied <= 1 for slip in case.book.slips("act"))
