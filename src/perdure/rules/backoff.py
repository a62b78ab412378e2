"""How long to wait before a step is tried again.

K1. Pure: the clock's reading and the random number are passed in.
K2. A wait is finite, never negative, and bounded: by the ceiling of its policy, or by the limit on `Retry-After`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from datetime import timedelta

from perdure.base import limits
from perdure.errors import UsageError
from perdure.rules.transports import attribute


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential: `base_s * factor ** (attempt - 1)`, at most `ceiling_s`, shorter by up to the share `jitter`."""

    base_s: float = limits.backoff_base_s
    factor: float = 2.0
    ceiling_s: float = limits.backoff_ceiling_s
    jitter: float = 0.5

    def __post_init__(self) -> None:
        _require_between("base_s", self.base_s, 0.0, sys.float_info.max)
        _require_between("factor", self.factor, 1.0, sys.float_info.max)
        _require_between("ceiling_s", self.ceiling_s, 0.0, sys.float_info.max)
        _require_between("jitter", self.jitter, 0.0, 1.0)

    def wait_s(self, attempt: int, random: float) -> float:
        """The wait after failed attempt number `attempt` (the first is 1); `random` is in [0, 1)."""
        assert attempt >= 1
        assert 0 <= random < 1
        full_s = min(self.ceiling_s, self._grown_s(attempt))
        return full_s * (1 - self.jitter * random)  # K2: jitter only shortens, so the ceiling holds

    def _grown_s(self, attempt: int) -> float:
        try:
            return self.base_s * self.factor ** (attempt - 1)
        except OverflowError:
            return self.ceiling_s if self.base_s else 0.0


def of(value: object) -> Backoff:
    """The policy a user named: nothing for the default, a number for its first wait in seconds, or a `Backoff`."""
    if value is None:
        return Backoff()
    if isinstance(value, Backoff):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # A first wait over the usual ceiling is meant as written, so it raises the ceiling.
        return Backoff(base_s=float(value), ceiling_s=max(limits.backoff_ceiling_s, float(value)))
    raise UsageError(
        f"backoff={value!r} is not a wait. Pass the first wait in seconds, or Backoff(base_s=…, factor=…, ceiling_s=…)."
    )


def retry_after_s(exc: BaseException, now_utc: float) -> float | None:
    """The wait that the other side asked for, in seconds from `now_utc`; None if it asked for none."""
    raw = retry_after(exc)
    if raw is None:
        return None
    wait_s = _seconds(raw, now_utc)
    if wait_s is None or math.isnan(wait_s):
        return None
    return min(max(wait_s, 0.0), limits.retry_after_ceiling_s)  # K2


def retry_after(exc: BaseException) -> float | str | None:
    """The wait as the exception carries it: seconds, or the text of a `Retry-After` header."""
    found = _plain(attribute(exc, "retry_after"))
    if found is not None:
        return found
    for holder in (attribute(exc, "response"), exc):
        found = _plain(_header(attribute(holder, "headers")))
        if found is not None:
            return found
    return None


def _plain(value: object) -> float | str | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else None


def _header(headers: object) -> object:
    get = attribute(headers, "get")
    if not callable(get):
        return None
    for name in ("Retry-After", "retry-after"):  # plain dicts do not ignore case
        try:
            value: object = get(name)
        except Exception:  # noqa: BLE001 - foreign code: a broken header object must not hide the failure itself
            return None
        if value is not None:
            return value
    return None


def _seconds(raw: float | str, now_utc: float) -> float | None:
    if not isinstance(raw, str):
        return raw
    try:
        return float(raw)
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime  # brings half of `email`, for a header that is seldom a date

    try:
        return parsedate_to_datetime(raw).timestamp() - now_utc
    except (TypeError, ValueError, OverflowError):
        return None


def _require_between(name: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:  # also for nan
        upper = f" and at most {highest:g}" if highest <= 1 else ""
        raise UsageError(
            f"Backoff({name}={value!r}) is out of bounds. Pass a finite number, at least {lowest:g}{upper}."
        )
