"""Y2: two workers. Random kills cannot find what is wrong with fencing; a worker that is frozen beyond its lease and goes on can."""

from __future__ import annotations

import pytest
from tests.crash import zombies
from tests.crash.matrix import killed


@pytest.mark.parametrize("zombie", zombies.ZOMBIES, ids=lambda zombie: f"{zombie.how.split(':')[0]}-{zombie.rule}")
def test_y2_a_zombie_changes_nothing(new_case, zombie, broken=""):
    """Frozen beyond its lease: the run goes on elsewhere with the counts of its rule; thawed, its write is refused and it starts nothing."""
    zombies.play(new_case, zombie, "async", broken)


def test_y2_a_zombie_in_a_thread(new_case):
    """The same for a plain step, whose thread goes on whatever the loop knows."""
    zombies.play(new_case, zombies.Zombie("applied", "idempotent", 4, 3), "plain")


def test_y2_frozen_with_the_write_lock(case):
    """Frozen inside its transaction it keeps everybody from writing; thawed, the run goes on and nothing is done twice."""
    frozen = case.begin("steps", 3, lease_ttl_s=zombies.LEASE_S, forever=True, faults="append.after_begin:nth=2:stop")
    case.until(lambda _: frozen.frozen)
    neighbour = case.spawn(lease_ttl_s=zombies.LEASE_S, forever=True)
    case.until(lambda _: "locked" in neighbour.said() or "busy" in neighbour.said() or not neighbour.alive)
    frozen.thaw()
    case.until(lambda look: look.status == "completed")
    assert case.counts()[1] == 3
    assert case.look().result == 3
    frozen.kill()


def test_y2_a_neighbours_death_is_noticed_at_once(case):
    """A dead process on the same machine is replaced without waiting for its lease, by a worker that is already there."""
    first = case.begin("steps", 3, faults="step.durable:at=act:nth=2:kill", forever=True, lease_ttl_s=3600.0)
    killed(first)
    second = case.spawn(forever=True, lease_ttl_s=3600.0)
    case.until(lambda look: look.status == "completed")
    second.kill()
    assert case.counts() == (3, 3)
