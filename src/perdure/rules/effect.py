"""What a step's rule says after a crash and after a failure (the crash matrix as pure decisions).

E1. What may have happened is repeated only under `read` and `idempotent`; `probe` asks first, `once` never repeats.
E2. A step that was not started is always done: nothing has left this side.
E3. An unknown outcome is a crash of that step: decided by the same rule, and not charged to its retries
    (up to `limits.unknown_outcomes_max`).
E4. A definite answer is never retried: `Permanent` and `Answer` end the step.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal, TypeAlias, assert_never

import msgspec

from perdure.base import limits
from perdure.errors import UsageError
from perdure.rules.backoff import Backoff
from perdure.rules.classify import Kind

OnDoubt: TypeAlias = Literal["in_doubt", "assume_done", "assume_failed"]
_ON_DOUBT = ("in_doubt", "assume_done", "assume_failed")


class Effect(StrEnum):
    """What a step does to the world outside."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


class StepRule(msgspec.Struct, frozen=True):
    """A step's rule, as its decorator states it."""

    effect: Effect = Effect.IDEMPOTENT
    probe: bool = False
    on_doubt: OnDoubt = "in_doubt"
    retries: int = 0
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    timeout_s: float | None = limits.step_timeout_s
    heartbeat_timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.probe and self.effect is Effect.READ:
            raise UsageError("A read has no effect to probe for. Leave out probe=, or say effect='once'.")
        if self.on_doubt not in _ON_DOUBT:
            known = f"Use one of {', '.join(_ON_DOUBT)}."
            what = "is not there yet" if self.on_doubt == "ask" else "is not a policy"
            raise UsageError(f"on_doubt={self.on_doubt!r} {what}. {known}")
        if not isinstance(self.retries, int) or not 0 <= self.retries <= limits.step_retries_max:
            raise UsageError(f"retries={self.retries!r} is out of bounds. Use 0 to {limits.step_retries_max}.")
        _require_time("timeout", self.timeout_s)
        _require_time("heartbeat_timeout", self.heartbeat_timeout_s)

    @property
    def marks_start(self) -> bool:
        """Whether the start is a record of its own (W1'): only where a repetition would have to be avoided."""
        return self.effect is not Effect.READ and (self.probe or self.effect is Effect.ONCE)


class Redo(msgspec.Struct, frozen=True):
    """Do the step, with its recorded key and arguments."""


class Probe(msgspec.Struct, frozen=True):
    """Ask the world whether the effect happened. If it did not, that is a definite refusal: decide again with it."""


class Doubt(msgspec.Struct, frozen=True):
    """Nobody can tell whether the effect happened: its policy or a person decides."""

    policy: OnDoubt


class Retry(msgspec.Struct, frozen=True):
    """Try again after a wait."""

    wait_s: float


class Fail(msgspec.Struct, frozen=True):
    """The step has failed; `exhausted` if it was out of retries, else the answer was definite."""

    exhausted: bool


OnRecovery: TypeAlias = Redo | Probe | Doubt
AfterFailure: TypeAlias = Retry | Fail | Probe | Doubt


def on_recovery(rule: StepRule, started: bool) -> OnRecovery:  # noqa: FBT001 - a fact of the journal, not a switch
    """What to do with a step that was decided (W1) and has no result; `started` says whether W1' is there."""
    if not started:
        return Redo()  # E2: for `read` and `idempotent` there is no W1', and a repetition is allowed
    match rule.effect:
        case Effect.READ:
            return Redo()
        case Effect.IDEMPOTENT:
            return Probe() if rule.probe else Redo()
        case Effect.ONCE:
            return Probe() if rule.probe else Doubt(rule.on_doubt)  # E1
        case _:
            assert_never(rule.effect)


def after_failure(
    rule: StepRule,
    attempt: int,
    outcome: Kind,
    unknown_count: int,
    retry_after_s: float | None,
    random: float,
) -> AfterFailure:
    """What to do after attempt number `attempt` (the first is 1) ended with `outcome`.

    `unknown_count` counts this step's unknown outcomes so far, this one included.
    """
    assert attempt >= 1
    assert unknown_count >= 0
    match outcome:
        case Kind.ANSWER | Kind.PERMANENT:
            return Fail(exhausted=False)  # E4
        case Kind.REFUSED:
            return _again(rule, attempt, unknown_count, retry_after_s, random)
        case Kind.UNKNOWN:
            assert unknown_count >= 1
            decision = on_recovery(rule, started=True)  # E3
            if isinstance(decision, Redo):
                return _again(rule, attempt, unknown_count, retry_after_s, random)
            return decision
        case _:
            assert_never(outcome)


def _again(
    rule: StepRule, attempt: int, unknown_count: int, retry_after_s: float | None, random: float
) -> Retry | Fail:
    excused = min(unknown_count, limits.unknown_outcomes_max)  # E3
    if attempt - excused > rule.retries:
        return Fail(exhausted=True)
    return Retry(max(rule.backoff.wait_s(attempt, random), retry_after_s or 0.0))


def _require_time(name: str, value_s: float | None) -> None:
    if value_s is not None and not (isinstance(value_s, int | float) and value_s > 0 and math.isfinite(value_s)):
        raise UsageError(f"{name}={value_s!r} is not a time limit. Pass seconds over 0, or None for no limit.")
