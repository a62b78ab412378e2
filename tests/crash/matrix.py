"""The table of the crash matrix, as it is checked: what the ledger must have counted once the run has come to rest again.

One row per point and rule: calls and applications of the effect, decisions made, and how the run stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.crash.conftest import Case


class Row(NamedTuple):
    calls: int
    applied: int
    decisions: int = 1
    ending: str = "completed"
    halves: int = 0


ONCE = Row(1, 1)
DOUBT = "in_doubt"
RULES = ("read", "idempotent", "probe", "once")

TABLE: dict[str, dict[str, Row]] = {
    "C0": dict.fromkeys(RULES, ONCE),
    "C1": dict.fromkeys(RULES, Row(1, 1, decisions=2)),
    "C1 recorded": dict.fromkeys(RULES, ONCE),
    "C1t": dict.fromkeys(RULES, Row(1, 1, decisions=2)),
    "C2": dict.fromkeys(RULES, ONCE),
    "C3a": {"read": ONCE, "idempotent": ONCE, "probe": ONCE, "once": Row(0, 0, ending=DOUBT)},
    "C3b": {
        "read": Row(2, 1, halves=1),
        "idempotent": Row(2, 1, halves=1),
        "probe": Row(1, 0, ending=DOUBT, halves=1),
        "once": Row(1, 0, ending=DOUBT, halves=1),
    },
    "C4": {"read": Row(2, 2), "idempotent": Row(2, 1), "probe": ONCE, "once": Row(1, 1, ending=DOUBT)},
    "C5": dict.fromkeys(RULES, ONCE),
    "C6": dict.fromkeys(RULES, ONCE),
}
TABLE["C4t"] = TABLE["C4"]


def check(case: Case, row: Row) -> None:
    """The run rests as the row says, with exactly these counts; nothing that follows the effect was done twice or too early."""
    look = case.look()
    choose, act, close = case.book.count("choose"), case.book.count("act"), case.book.count("close")
    found = Row(act.calls, act.applied, choose.applied, look.reason or look.status, act.halves)
    assert found == row, f"{found} instead of {row}; the run: {look}"
    assert (close.calls, close.applied) == ((1, 1) if row.ending == "completed" else (0, 0))
    step = look.step("act")
    if row.ending == "completed":
        assert step.state == "executed"
        assert look.result == [
            row.decisions,
            {"number": row.applied if step.effect == "read" else 1, "value": row.decisions},
        ]
    else:
        assert look.status == "parked"
        assert (step.state, step.error) == ("started", None)
        assert str(step.detail).startswith("in doubt: ")
        assert f"step {step.position} act" in look.view.error["message"]
    keys = [slip.key for slip in case.book.slips("act") if slip.calls]
    if step.effect == "read":
        assert len(keys) == act.calls  # a key of its own for each attempt, and none that an effect could have
        assert all(":read:" in key for key in keys)
    else:
        assert set(keys) <= {step.key}


def killed(process) -> None:
    assert process.wait() == -9, process.said()


def set_dedupe(case, rule) -> None:
    if rule != "idempotent":
        case.book.without_dedupe("act")


def die_in_flight(case, rule, style) -> None:
    case.book.plan("act", before="hold")
    die_when_recorded(case, rule, style, let_go=False)


def die_when_recorded(case, rule, style, *, let_go=True, **options) -> None:
    """Hold the request until its decision is durable, which for a read comes later; then let it run into its death, or kill it as it waits."""
    process = case.begin("one", rule, style, **options)
    case.book.wait("act", "arrived")
    case.until(lambda look: look.has("act"))
    if let_go:
        case.book.release("act")
        killed(process)
    else:
        process.kill()
        case.book.wait("act", "lost")
