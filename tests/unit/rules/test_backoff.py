"""Waits between attempts."""

from __future__ import annotations

import email.message
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.base import limits
from perdure.errors import UsageError
from perdure.rules.backoff import Backoff, of, retry_after, retry_after_s

NOW = 1_767_323_045.0  # Fri, 02 Jan 2026 03:04:05 GMT


def failure(**attributes: object) -> Exception:
    exc = Exception("slow down")
    for name, value in attributes.items():
        setattr(exc, name, value)
    return exc


def answered(headers: object) -> Exception:
    return failure(response=SimpleNamespace(headers=headers))


def test_waits_double_up_to_the_ceiling() -> None:
    """Without jitter the waits are base, base times factor, … and then the ceiling."""
    backoff = Backoff(base_s=1.0, factor=2.0, ceiling_s=5.0, jitter=0.0)
    assert [backoff.wait_s(attempt, 0.9) for attempt in (1, 2, 3, 4, 5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_jitter_shortens_by_its_share() -> None:
    """Half jitter spreads the waits over the upper half."""
    backoff = Backoff(base_s=4.0, ceiling_s=60.0, jitter=0.5)
    assert backoff.wait_s(1, 0.0) == 4.0
    assert backoff.wait_s(1, 0.5) == 3.0


@given(
    base=st.floats(0, 1e6),
    factor=st.floats(1, 1e3),
    ceiling=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 100_000),
    random=st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_never_negative_and_never_above_the_ceiling(
    base: float, factor: float, ceiling: float, jitter: float, attempt: int, random: float
) -> None:
    """Whatever the policy and the attempt."""
    assert 0 <= Backoff(base, factor, ceiling, jitter).wait_s(attempt, random) <= ceiling


def test_no_base_means_no_wait_even_after_very_many_attempts() -> None:
    """Zero stays zero where the power overflows."""
    assert Backoff(base_s=0.0, factor=10.0).wait_s(10_000, 0.0) == 0.0


@pytest.mark.parametrize(
    "options",
    [
        {"base_s": -1.0},
        {"base_s": float("inf")},
        {"base_s": float("nan")},
        {"factor": 0.5},
        {"ceiling_s": float("inf")},
        {"jitter": 1.5},
        {"jitter": -0.1},
    ],
)
def test_a_policy_that_cannot_be_waited_for_is_refused(options: dict[str, float]) -> None:
    """The error names the option."""
    with pytest.raises(UsageError, match=next(iter(options))):
        Backoff(**options)


def test_of_takes_nothing_a_number_or_a_policy() -> None:
    """None is the default; a number is the first wait; a policy is itself."""
    policy = Backoff(base_s=3.0)
    assert of(None) == Backoff()
    assert of(2) == Backoff(base_s=2.0)
    assert of(policy) is policy


def test_a_first_wait_over_the_usual_ceiling_is_meant() -> None:
    """`backoff=600` waits ten minutes, not the ceiling of the default."""
    assert of(600).wait_s(1, 0.0) == 600.0


@pytest.mark.parametrize("value", [True, "1s", object(), [1], -1, float("inf")])
def test_of_refuses_what_is_no_wait(value: object) -> None:
    """With the remedy in the message."""
    with pytest.raises(UsageError, match="Pass"):
        of(value)


@pytest.mark.parametrize(
    ("exc", "wait_s"),
    [
        (failure(), None),
        (failure(retry_after=2), 2.0),
        (failure(retry_after=2.5), 2.5),
        (failure(retry_after="7"), 7.0),
        (failure(retry_after=timedelta(minutes=1)), 60.0),
        (failure(retry_after=None, headers={"retry-after": "8"}), 8.0),
        (failure(headers={"Retry-After": "9"}), 9.0),
        (answered({"Retry-After": "10"}), 10.0),
        (answered({"Retry-After": b"11"}), 11.0),
        (answered({"Retry-After": "Fri, 02 Jan 2026 03:04:35 GMT"}), 30.0),
        (answered({"Retry-After": "Fri, 02 Jan 2026 03:00:00 GMT"}), 0.0),
        (answered({"Retry-After": "-5"}), 0.0),
        (answered({"Retry-After": "999999999"}), limits.retry_after_ceiling_s),
        (failure(retry_after=float("inf")), limits.retry_after_ceiling_s),
        (failure(retry_after=float("nan")), None),
        (failure(retry_after=True), None),
        (failure(retry_after=lambda: 3), None),
        (answered({"Retry-After": "soon"}), None),
        (answered({"Retry-After": ""}), None),
        (answered({}), None),
        (answered(None), None),
        (answered(SimpleNamespace(get=None)), None),
    ],
)
def test_retry_after_is_read_from_where_libraries_keep_it(exc: Exception, wait_s: float | None) -> None:
    """Seconds or a date, from the exception, its response or its headers; bounded and never negative."""
    assert retry_after_s(exc, NOW) == wait_s


def test_retry_after_reads_headers_of_the_standard_library() -> None:
    """`urllib.error.HTTPError.headers` is an email message."""
    headers = email.message.Message()
    headers["retry-after"] = "12"
    assert retry_after_s(failure(headers=headers), NOW) == 12.0


def test_a_broken_attribute_counts_as_absent() -> None:
    """Looking for a header must not raise another error over the failure."""

    class BrokenError(Exception):
        @property
        def response(self) -> object:
            raise RuntimeError("no response was set")

        @property
        def headers(self) -> object:
            class Headers:
                def get(self, name: str) -> str:
                    raise OSError(name)

            return Headers()

    assert retry_after_s(BrokenError(), NOW) is None


def test_the_text_of_a_header_is_kept_for_later() -> None:
    """A child process has no clock of the runtime: it passes on the text, the worker makes seconds of it."""
    text = "Fri, 02 Jan 2026 03:04:35 GMT"
    assert retry_after(answered({"Retry-After": text})) == text
    assert retry_after_s(failure(retry_after=text), NOW) == 30.0
