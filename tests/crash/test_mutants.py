"""Negative controls: with a defect seeded into the runtime, the test that is there to find it fails. A suite that cannot fail proves nothing."""

from __future__ import annotations

import pytest
from tests.crash import test_fsync, test_matrix, test_recovery, test_zombies
from tests.crash.zombies import ZOMBIES


def zombie(how):
    return next(zombie for zombie in ZOMBIES if zombie.how.startswith(how))


FINDERS = {
    "effect_before_w1": lambda case: test_matrix.test_c1_while_the_store_cannot_be_written(case, "idempotent", "async"),
    "no_fsync": lambda case: test_fsync.test_every_effect_waits_for_the_disk(case, "async"),
    "key_of_attempt": lambda case: test_matrix.test_c4_applied_and_not_recorded(case, "idempotent", "async"),
    "decide_again": lambda case: test_matrix.test_c2_decided_but_not_started(case, "idempotent", "async"),
    "retry_once_after_timeout": lambda case: test_matrix.test_an_unknown_outcome_without_a_crash(
        case, "once", "async", "hold"
    ),
    "once_is_redone": lambda case: test_matrix.test_c4_applied_and_not_recorded(case, "once", "async"),
    "no_fence": lambda case: test_zombies.test_y2_a_zombie_changes_nothing(
        lambda: case, zombie("writer.before_commit"), case.broken
    ),
    "lease_is_not_looked_at": lambda case: test_zombies.test_y2_a_zombie_changes_nothing(
        lambda: case, zombie("writer.after_commit"), case.broken
    ),
    "progress_is_not_seen": lambda case: test_recovery.test_y1_progress_resets_the_count(case),
    "crash_loop_goes_on": lambda case: test_recovery.test_y1_a_crash_loop_is_parked(case),
    "control_comes_later": lambda case: test_recovery.test_y4_a_pause_outlives_the_process(case, "read"),
}


@pytest.mark.parametrize("mutant", FINDERS)
def test_a_seeded_defect_is_found(case, mutant):
    """The test for that defect fails on a runtime that has it."""
    case.broken = mutant
    with pytest.raises(AssertionError):
        FINDERS[mutant](case)
