"""The crash matrix as pure decisions, and what follows a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.base import limits
from perdure.errors import UsageError
from perdure.rules.backoff import Backoff
from perdure.rules.classify import Kind
from perdure.rules.effect import (
    Doubt,
    Effect,
    Fail,
    OnDoubt,
    Probe,
    Redo,
    Retry,
    StepRule,
    after_failure,
    on_recovery,
)

BACKOFF = Backoff(base_s=1.0, factor=2.0, ceiling_s=8.0, jitter=0.0)
READ = StepRule(Effect.READ, backoff=BACKOFF)
IDEMPOTENT = StepRule(Effect.IDEMPOTENT, backoff=BACKOFF)
ONCE = StepRule(Effect.ONCE, backoff=BACKOFF)
PROBED = StepRule(Effect.IDEMPOTENT, probe=True, backoff=BACKOFF)
ONCE_PROBED = StepRule(Effect.ONCE, probe=True, backoff=BACKOFF)
ALL = (READ, IDEMPOTENT, ONCE, PROBED, ONCE_PROBED)


@pytest.mark.parametrize("rule", ALL)
def test_a_step_that_was_not_started_is_done(rule: StepRule) -> None:
    """Row C2: decided, not started. Under every rule the recorded action is executed."""
    assert on_recovery(rule, started=False) == Redo()


@pytest.mark.parametrize(
    ("rule", "decision"),
    [
        (READ, Redo()),
        (IDEMPOTENT, Redo()),
        (PROBED, Probe()),
        (ONCE_PROBED, Probe()),
        (ONCE, Doubt("in_doubt")),
    ],
)
def test_a_step_that_was_started_follows_its_rule(rule: StepRule, decision: object) -> None:
    """Rows C3a to C4t: it may have happened. Reads and keyed steps repeat, a probe asks, `once` is in doubt."""
    assert on_recovery(rule, started=True) == decision


@pytest.mark.parametrize("policy", ["in_doubt", "assume_done", "assume_failed"])
def test_doubt_names_the_policy_of_the_step(policy: OnDoubt) -> None:
    """What a `once` step in doubt becomes is its own policy."""
    assert on_recovery(StepRule(Effect.ONCE, on_doubt=policy), started=True) == Doubt(policy)


def test_only_probed_and_once_steps_record_their_start() -> None:
    """W1' costs a commit; it is written only where it changes the decision."""
    assert [rule.marks_start for rule in ALL] == [False, False, True, True, True]


@pytest.mark.parametrize("rule", ALL)
@pytest.mark.parametrize("kind", [Kind.PERMANENT, Kind.ANSWER])
def test_a_definite_end_is_never_retried(rule: StepRule, kind: Kind) -> None:
    """`Permanent` and control-flow outcomes end the step whatever its retries."""
    rule = StepRule(rule.effect, probe=rule.probe, retries=5)
    assert after_failure(rule, 1, kind, 0, None, 0.0) == Fail(exhausted=False)


@pytest.mark.parametrize("effect", list(Effect))
def test_a_refusal_is_retried_as_often_as_allowed(effect: Effect) -> None:
    """A refusal is a failure under every rule: nothing happened, so even `once` may try again."""
    rule = StepRule(effect, retries=2, backoff=BACKOFF)
    ends = [after_failure(rule, attempt, Kind.REFUSED, 0, None, 0.0) for attempt in (1, 2, 3)]
    assert ends == [Retry(1.0), Retry(2.0), Fail(exhausted=True)]


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT])
@pytest.mark.parametrize("retries", [0, 2])
def test_unknown_outcomes_have_attempts_of_their_own(effect: Effect, retries: int) -> None:
    """A timeout is a crash of that step: it is repeated, up to a limit beyond the step's retries."""
    rule = StepRule(effect, retries=retries, backoff=BACKOFF)
    attempts_max = retries + limits.unknown_outcomes_max + 1
    for attempt in range(1, attempts_max):
        assert isinstance(after_failure(rule, attempt, Kind.UNKNOWN, attempt, None, 0.0), Retry)
    assert after_failure(rule, attempts_max, Kind.UNKNOWN, attempts_max, None, 0.0) == Fail(exhausted=True)


def test_an_unknown_outcome_is_not_charged_to_the_retries() -> None:
    """One timeout, then refusals: the refusals still have all retries."""
    rule = StepRule(Effect.IDEMPOTENT, retries=1, backoff=BACKOFF)
    assert after_failure(rule, 1, Kind.UNKNOWN, 1, None, 0.0) == Retry(1.0)
    assert after_failure(rule, 2, Kind.REFUSED, 1, None, 0.0) == Retry(2.0)
    assert after_failure(rule, 3, Kind.REFUSED, 1, None, 0.0) == Fail(exhausted=True)


@given(
    retries=st.integers(0, limits.step_retries_max),
    attempt=st.integers(1, 2_000),
    unknown=st.integers(1, 2_000),
    policy=st.sampled_from(["in_doubt", "assume_done", "assume_failed"]),
)
def test_once_is_never_retried_after_an_unknown_outcome(
    retries: int, attempt: int, unknown: int, policy: OnDoubt
) -> None:
    """B4: whatever its retries, a `once` step that timed out is in doubt."""
    rule = StepRule(Effect.ONCE, on_doubt=policy, retries=retries)
    assert after_failure(rule, max(attempt, unknown), Kind.UNKNOWN, unknown, None, 0.5) == Doubt(policy)


@pytest.mark.parametrize("rule", [PROBED, ONCE_PROBED])
def test_a_probed_step_asks_after_an_unknown_outcome(rule: StepRule) -> None:
    """A timeout of a step with a probe is answered by the probe, also without retries."""
    assert after_failure(rule, 1, Kind.UNKNOWN, 1, None, 0.0) == Probe()


def test_the_wait_is_the_longer_of_backoff_and_retry_after() -> None:
    """What the other side asks for never shortens our own backoff."""
    rule = StepRule(Effect.IDEMPOTENT, retries=5, backoff=BACKOFF)
    assert after_failure(rule, 2, Kind.REFUSED, 0, 30.0, 0.0) == Retry(30.0)
    assert after_failure(rule, 4, Kind.REFUSED, 0, 3.0, 0.0) == Retry(8.0)


@pytest.mark.parametrize(
    "options",
    [
        {"effect": Effect.READ, "probe": True},
        {"on_doubt": "shrug"},
        {"retries": -1},
        {"retries": limits.step_retries_max + 1},
        {"timeout_s": 0.0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"heartbeat_timeout_s": -1.0},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    """A wrong option is an error where it is written, not on the day of the crash."""
    with pytest.raises(UsageError):
        StepRule(**options)  # type: ignore[arg-type]
