"""C1t and C4t: the record itself is half written. It is dropped by its checksum, and what follows is as if it had never been made."""

from __future__ import annotations

import random

import pytest
from tests.crash.matrix import RULES, TABLE, check, die_in_flight, die_when_recorded, killed, set_dedupe
from tests.crash.wal import Image

images = 8
styles = pytest.mark.parametrize("style", ["async", "plain"])
rules = pytest.mark.parametrize("rule", RULES)


@styles
@rules
def test_c1t_the_decision_is_torn(case, rule, style):
    """A torn W1: decided again, done once, whatever part of the last commit is missing or wrong."""
    if rule == "read":  # it starts before its record is durable
        die_in_flight(case, rule, style)
    else:
        killed(case.begin("one", rule, style, faults="step.durable:at=act:kill"))
    recover_from_copies(case, TABLE["C1t"][rule], images)


@styles
@rules
def test_c4t_the_result_is_torn(case, rule, style):
    """A torn W2: the effect happened and nothing says so, which is C4."""
    set_dedupe(case, rule)
    case.book.plan("act", before="hold")
    die_when_recorded(case, rule, style, faults="step.durable:at=close:kill")
    recover_from_copies(case, TABLE["C4t"][rule], images)


def recover_from_copies(case, row, count) -> None:
    image = Image(case.store)
    before = case.book.copy(f"{case.book.name}-before")
    for seed in range(count):
        before.copy(case.book.name)
        if row.calls == 2 and row.applied == 2:
            case.book.without_dedupe("act")
        image.put_back_torn(random.Random(seed))
        case.go_on()
        check(case, row)
