"""The crash matrix for function agents: where a process dies x the step's rule x async or in a thread. Real kills, fresh processes, exact counts."""

from __future__ import annotations

import pytest
from tests.crash.matrix import RULES, TABLE, check, die_in_flight, die_when_recorded, killed, set_dedupe

styles = pytest.mark.parametrize("style", ["async", "plain"])
rules = pytest.mark.parametrize("rule", RULES)


@styles
@rules
@pytest.mark.parametrize("point", ["create.before_commit", "create.after_commit"])
def test_c0_the_submitters_retry_makes_exactly_one_run(case, rule, style, point):
    """C0: the submitter dies around W0; asking again with the same id gives one run, which is executed once."""
    killed(case.begin("one", rule, style, faults=f"{point}:kill", worker=False))
    assert case.begin("one", rule, style).wait() == 0
    check(case, TABLE["C0"][rule])
    assert case.begin("one", rule, style).wait() == 0
    check(case, TABLE["C0"][rule])


@styles
@rules
@pytest.mark.parametrize("agent", ["one", "noted"])
def test_c1_before_the_decision_is_written(case, rule, style, agent):
    """C1: the effect was never started; the decision is made again, unless it was on record."""
    killed(case.begin(agent, rule, style, faults="step.decided:at=act:kill"))
    assert not case.look().has("act")
    case.go_on()
    check(case, TABLE["C1" if agent == "one" else "C1 recorded"][rule])


@styles
@pytest.mark.parametrize("rule", RULES[1:])
def test_c1_while_the_store_cannot_be_written(case, rule, style):
    """C1: no commit succeeds until the process dies, so no effect starts, however long that takes."""
    killed(case.begin("one", rule, style, faults="writer.before_commit:nth=5:kill;writer.before_commit:error"))
    assert case.counts() == (0, 0)
    case.go_on()
    check(case, TABLE["C1"][rule])


@styles
@rules
def test_c2_decided_but_not_started(case, rule, style):
    """C2: the recorded action with its recorded arguments, once; nothing is decided again, not even for `once`."""
    if (
        rule == "read"
    ):  # a read starts before its record is durable, so it comes to this point only when it is taken up again
        die_in_flight(case, rule, style)
    killed(case.begin("one", rule, style, faults="step.durable:at=act:kill"))
    assert case.look().step("act").state == "decided"
    assert case.counts() == (0, 0)
    case.go_on()
    check(case, TABLE["C2"][rule])


@styles
@rules
def test_c3a_the_request_does_not_reach_the_target(case, rule, style):
    """C3a: the process dies with its request under way; the target has seen nothing."""
    die_in_flight(case, rule, style)
    case.go_on()
    check(case, TABLE["C3a"][rule])
    assert case.book.count("act").probes == (rule == "probe")


@styles
@pytest.mark.parametrize("rule", ["probe", "once"])
def test_c3a_started_on_record_and_not_begun(case, rule, style):
    """C3a: the start is on record and the request was not even made."""
    killed(case.begin("one", rule, style, faults="step.started:at=act:kill"))
    case.go_on()
    check(case, TABLE["C3a"][rule])


@styles
@rules
def test_c3b_half_applied(case, rule, style):
    """C3b: what may be repeated is brought to its end state; a probe that says "partial", and `once`, are in doubt."""
    case.book.plan("act", before="hold", apply="half", after="kill")
    die_when_recorded(case, rule, style)
    case.go_on()
    check(case, TABLE["C3b"][rule])


@styles
@rules
def test_c4_applied_and_not_recorded(case, rule, style):
    """C4: repeated with the same key and answered with the first result; found by the probe; in doubt for `once`."""
    set_dedupe(case, rule)
    case.book.plan("act", before="hold", after="kill")
    die_when_recorded(case, rule, style)
    case.go_on()
    check(case, TABLE["C4"][rule])


@styles
@rules
def test_c4_answered_and_not_recorded(case, rule, style):
    """C4: the same when the answer was there and the process dies before W2 is written."""
    set_dedupe(case, rule)
    case.book.plan("act", before="hold")
    die_when_recorded(case, rule, style, faults="step.settled:at=act:kill")
    case.go_on()
    check(case, TABLE["C4"][rule])


@styles
@rules
def test_c5_recorded(case, rule, style):
    """C5: the recorded result is returned and the effect is not called again."""
    killed(case.begin("one", rule, style, faults="step.durable:at=close:kill"))
    assert case.look().step("act").state == "executed"
    case.go_on()
    check(case, TABLE["C5"][rule])


@styles
@rules
def test_c6_after_the_end(case, rule, style):
    """C6: the end is durable and nobody was told; nothing runs, the answer is there."""
    killed(case.begin("one", rule, style, faults="run.left:at=completed:kill"))
    check(case, TABLE["C6"][rule])
    case.go_on()
    check(case, TABLE["C6"][rule])


@styles
@rules
@pytest.mark.parametrize("how", ["hold", "drop"])
def test_an_unknown_outcome_without_a_crash(case, rule, style, how):
    """A timeout or a dropped connection after the request left is C4: same row, same rule."""
    set_dedupe(case, rule)
    case.book.plan("act", after=how)
    assert case.begin("one", rule, f"hasty {style}").wait() == 0
    check(case, TABLE["C4"][rule] if rule in ("read", "idempotent", "probe") else TABLE["C4"]["once"])


@styles
@rules
def test_a_dropped_connection_before_the_request_is_taken(case, rule, style):
    """The caller cannot tell a request that was lost from one that was applied: C3a, same row, same rule."""
    case.book.plan("act", before="drop")
    assert case.begin("one", rule, f"hasty {style}").wait() == 0
    check(case, TABLE["C3a"][rule])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("point", ["C3a", "C3b", "C4"])
def test_a_step_in_a_process_of_its_own(case, rule, point):
    """A CPU step's process goes down with its worker: the same rows."""
    set_dedupe(case, rule) if point == "C4" else None
    plan = {"C3a": {}, "C3b": {"apply": "half", "after": "kill"}, "C4": {"after": "kill"}}[point]
    case.book.plan("act", before="hold", **plan)
    die_when_recorded(case, rule, "cpu", let_go=point != "C3a")
    case.go_on()
    check(case, TABLE[point][rule])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("point", ["C3a", "C4"])
def test_the_death_of_a_steps_process_alone(case, rule, point):
    """If only the CPU step's process is killed, the outcome is unknown, as after a crash: the same rows, in one worker's life."""
    set_dedupe(case, rule) if point == "C4" else None
    case.book.plan("act", **{"before" if point == "C3a" else "after": "kill"})
    assert case.begin("one", rule, "child").wait() == 0
    check(case, TABLE[point][rule])


@styles
@pytest.mark.parametrize("rule", ["idempotent", "probe", "once"])
@pytest.mark.parametrize("status", [422, 429, 503])
def test_a_definite_refusal_is_a_recorded_failed_attempt(case, rule, style, status):
    """The target says no, so nothing happened: 4xx ends the step, 429 and 503 only if no retry is left. Nobody is in doubt."""
    case.book.plan("act", status=status)
    assert case.begin("careful", rule, style).wait() == 0
    assert case.look().result == [1, "Refused"]
    assert case.look().step("act").error["type"] == "Refused"
    assert case.counts() == (1, 0)
    assert case.counts("close") == (1, 1)


def test_a_probe_that_fails_is_asked_again(case):
    """A probe that cannot answer is asked again after a wait, without the effect; then its answer counts."""
    case.book.without_dedupe("act")
    case.book.plan("act", after="drop")
    case.book.plan("asked", status=503, times=2)
    assert case.begin("doubting").wait() == 0
    check(case, TABLE["C4"]["probe"])
    assert case.book.count("asked").calls == 3


def test_a_probe_that_never_answers_ends_in_doubt(case):
    """After so many failures of the probe a person is asked; the effect was not called again."""
    case.book.without_dedupe("act")
    case.book.plan("act", after="drop")
    case.book.plan("asked", status=503, times=1000)
    assert case.begin("doubting").wait() == 0
    check(case, TABLE["C4"]["once"])
