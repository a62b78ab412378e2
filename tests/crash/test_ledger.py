"""The ledger counts by itself, durably, and does to its callers what it is told."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from perdure.testing.ledger import Count, Ledger, Refused, Target


def test_a_key_is_applied_once_and_answered_with_the_first_result(case):
    """Calls are counted each, applications once for a key; a later call gets the first one's result."""
    first = case.book.call("pay", 5, key="k")
    assert case.book.call("pay", 6, key="k") == first == {"number": 1, "value": 5}
    assert case.book.count("pay") == Count(arrived=2, calls=2, applied=1)
    assert [(slip.key, slip.calls, slip.applied) for slip in case.book.slips("pay")] == [("k", 2, 1)]


def test_without_dedupe_every_call_is_applied(case):
    """A target that knows no keys."""
    case.book.without_dedupe("send")
    assert [case.book.call("send", key="k")["number"] for _ in range(3)] == [1, 2, 3]


def test_a_held_call_goes_on_when_released(case):
    """It has arrived and is neither counted nor applied until then."""
    case.book.plan("pay", before="hold")
    caller = threading.Thread(target=case.book.call, args=("pay", 1), kwargs={"key": "k"})
    caller.start()
    case.book.wait("pay", "arrived")
    assert case.book.happened("pay", "k") is None
    case.book.release("pay")
    caller.join()
    assert case.book.happened("pay", "k") == {"number": 1, "value": 1}


def test_half_applied(case):
    """A probe sees it, and the next call with the key brings it to its end."""
    case.book.plan("pay", apply="half", after="drop")
    with pytest.raises(ConnectionError):
        case.book.call("pay", 1, key="k")
    assert case.book.happened("pay", "k") == "partial"
    case.book.call("pay", 1, key="k")
    assert case.book.count("pay") == Count(arrived=2, calls=2, applied=1, halves=1, probes=1)


@pytest.mark.parametrize(("before", "after", "counted"), [("kill", "pass", (0, 0)), ("pass", "kill", (1, 1))])
def test_the_caller_is_killed(case, before, after, counted):
    """Before its call counts, or after it was applied."""
    case.book.plan("pay", before=before, after=after)
    code = f"from perdure.testing.ledger import Target; Target({case.book.url!r}).call('pay', key='k')"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert case.counts("pay") == counted


def test_refusals_are_definite_and_carry_their_wait(case):
    """429 with Retry-After, as often as planned, then it is taken."""
    case.book.plan("pay", status=429, retry_after=2.5, times=2)
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            case.book.call("pay", key="k")
        assert (refused.value.status, refused.value.retry_after) == (429, "2.5")
    case.book.call("pay", key="k")
    assert case.book.count("pay") == Count(arrived=3, calls=3, applied=1, refused=2)


def test_its_file_remembers(tmp_path):
    """A new process on the same file knows what was applied."""
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.book("b").call("pay", 1, key="k")
        ledger.book("b").copy("c").call("pay", 2, key="l")
    with Ledger(tmp_path / "ledger") as ledger:
        assert ledger.book("b").call("pay", 9, key="k") == {"number": 1, "value": 1}
        assert [slip.key for slip in ledger.book("c").slips("pay")] == ["k", "l"]


def test_strangers_are_not_heard(case):
    """A call without the ledger's token does nothing."""
    address = "/".join(case.book.url.split("/")[:3])
    with pytest.raises(Refused, match="404"):
        Target(f"{address}/guess/book").call("pay", key="k")
