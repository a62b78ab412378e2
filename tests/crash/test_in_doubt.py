"""A `once` step in doubt: nothing moves until a person or the step's policy decides, and then exactly what was decided happens."""

from __future__ import annotations

import pytest

from perdure.api.handle import Handle

styles = pytest.mark.parametrize("style", ["async", "plain"])
points = pytest.mark.parametrize("point", ["C3a", "C3b", "C4"])
PLANS = {"C3a": {"before": "kill"}, "C3b": {"apply": "half", "after": "kill"}, "C4": {"after": "kill"}}
COUNTS = {"C3a": (0, 0), "C3b": (1, 0), "C4": (1, 1)}


def doubt(case, point, style, agent="one", rule="once") -> None:
    case.book.without_dedupe("act")
    case.book.plan("act", **PLANS[point])
    assert case.begin(agent, rule, style).wait() == -9
    case.go_on()


@styles
@points
def test_nothing_moves_while_a_step_is_in_doubt(case, point, style):
    """Workers come and go; the run stays parked as in doubt, says which step and what to do, and nothing is called."""
    doubt(case, point, style)
    for _ in range(2):
        case.go_on()
        look = case.look()
        assert (look.status, look.reason) == ("parked", "in_doubt")
        assert (look.view.error["step"], look.view.error["position"]) == ("act", 2)
        assert case.counts() == COUNTS[point]


@styles
@points
def test_resolved_as_done(case, point, style):
    """--done VALUE: the value is the step's result, and nothing is called again."""
    doubt(case, point, style)
    case.kit.ask(case.store, "r", lambda handle: handle.resolve("act", done="by hand"))
    case.go_on()
    assert case.look().result == [1, "by hand"]
    assert case.counts() == COUNTS[point]
    assert case.counts("close") == (1, 1)


@styles
@points
def test_resolved_as_retry(case, point, style):
    """--retry: it is done once more, with the recorded arguments, and only once more."""
    doubt(case, point, style)
    case.kit.ask(case.store, "r", lambda handle: handle.resolve(2, retry=True))
    case.go_on()
    calls, applied = COUNTS[point]
    assert case.look().result == [1, {"number": applied + 1, "value": 1}]
    assert case.counts() == (calls + 1, applied + 1)
    assert case.counts("choose") == (1, 1)


@styles
@points
def test_resolved_as_failed(case, point, style):
    """--fail: the agent gets the failure and goes on; nothing is called again."""
    doubt(case, point, style, agent="careful")
    case.kit.ask(case.store, "r", lambda handle: handle.resolve("act", fail=True))
    case.go_on()
    assert case.look().result == [1, "ResolvedAsFailed"]
    assert case.counts() == COUNTS[point]


@points
def test_killed_right_after_a_persons_word(case, point):
    """The word is durable: killed before the repetition begins it is done once by the next process; killed after it began, it is in doubt again."""
    doubt(case, point, "async")
    case.kit.ask(case.store, "r", lambda handle: handle.resolve("act", retry=True))
    assert case.spawn(faults="step.durable:at=act:kill").wait() == -9
    assert case.counts() == COUNTS[point]
    assert case.spawn(faults="step.settled:at=act:kill").wait() == -9
    case.go_on()
    calls, applied = COUNTS[point]
    assert case.look().reason == "in_doubt"
    assert case.counts() == (calls + 1, applied + 1)
    case.kit.ask(case.store, "r", lambda handle: handle.resolve("act", done=7))
    case.go_on()
    assert case.look().result == [1, 7]
    assert case.counts() == (calls + 1, applied + 1)


@points
def test_an_answer_is_consumed_once(case, point):
    """The process that consumed the answer dies before its records are written: the next one finds the answer again."""
    doubt(case, point, "async")
    case.kit.ask(case.store, "r", lambda handle: handle.resolve("act", done=7))
    assert case.spawn(faults="writer.before_commit:kill").wait() == -9
    case.go_on()
    assert case.look().result == [1, 7]
    assert case.counts() == COUNTS[point]
    assert [entry.kind for entry in case.look().history].count("resolve") == 1


@styles
@points
@pytest.mark.parametrize(("rule", "result"), [("done", [1, None]), ("failed", [1, "InDoubt"])])
def test_policies_decide_without_a_person(case, point, style, rule, result):
    """assume_done and assume_failed: the run goes on by itself and the effect is not called again."""
    doubt(case, point, style, agent="careful", rule=rule)
    assert case.look().result == result
    assert case.counts() == COUNTS[point]


def test_resuming_does_not_decide(case):
    """`resume` of a run in doubt is not an answer: it parks again, and nothing is called."""
    doubt(case, "C4", "async")
    case.kit.ask(case.store, "r", Handle.resume)
    case.go_on()
    assert case.look().reason == "in_doubt"
    assert case.counts() == (1, 1)
