"""Retry: a record that supersedes the failed step and what follows it (design 1.6.13, J1).

Nothing is deleted. `effective` gives the records that still count. New steps are numbered above all old ones, so the key of an effect that happened is
never lent to another one (J4).
"""

from __future__ import annotations

import msgspec

from perdure.base.records import AnyRecord, Asked, Begun, Cancelled, Ended, Executed, Fired, Retried, Started
from perdure.errors import NotStorable, PayloadTooLarge

_HAPPENED = frozenset({NotStorable.__name__, PayloadTooLarge.__name__})
"""The effect has happened and only its result could not be kept: a step that marks its start is not begun anew, its rule decides."""


def effective(numbered: list[AnyRecord]) -> list[AnyRecord]:
    """The journal without what a retry has superseded."""
    if not any(isinstance(record, Retried) for record in numbered):
        return numbered
    return [record for _, record in _counting(numbered)]


def _counting(numbered: list[AnyRecord]) -> list[tuple[int, AnyRecord]]:
    kept: list[tuple[int, AnyRecord]] = []
    for number, record in enumerate(numbered, start=1):
        if isinstance(record, Retried):
            while kept and kept[-1][0] >= record.dropped_from:
                kept.pop()
        kept.append((number, record))
    return kept


def plan_retry(numbered: list[AnyRecord], *, at: float, by: str) -> list[AnyRecord]:
    """The records that make an ended run go on from its failed step: a `Retried`, and again the outcomes it need not lose."""
    counting = _counting(numbered)
    # The first: one that was ended again before its retry began ended for the old reason.
    ended = next(record for _, record in counting if isinstance(record, Ended))
    first = _first_dropped(counting, ended)
    before = [record for number, record in counting if number < first]
    after = [record for number, record in counting if number >= first]
    asked_before = {record.position for record in before if isinstance(record, Asked)}
    answered_before = {record.position for record in before if isinstance(record, Executed)}
    open_positions = asked_before - answered_before
    outcomes = [record for record in after if isinstance(record, Executed)]
    reopened = [
        record.position for record in outcomes if record.position in open_positions and record.error is not None
    ]
    effects = [
        record.position
        for record in outcomes
        if record.position not in asked_before and record.error is None and not record.cancelled
    ]
    positions = max((record.position for record in numbered if isinstance(record, Asked)), default=0)
    retried = Retried(at, ended.error.position if ended.error else 0, first, reopened, effects, positions, by)
    again: list[AnyRecord] = []
    if first == ended.main_done_at:
        cause = numbered[first - 1]
        if isinstance(cause, Begun):
            again.append(cause)
        elif isinstance(cause, Fired):
            again.append(Fired(max(at, cause.at), cause.timer))
    again += [
        msgspec.structs.replace(record, at=at)
        for record in outcomes
        if record.position in open_positions and record.error is None and not record.cancelled
    ]
    marked = {
        record.position for record in before if isinstance(record, Asked) and (record.probe or record.effect == "once")
    }
    again += [
        Started(at, record.position, record.attempt)
        for record in outcomes
        if record.position in marked.intersection(reopened)
        and record.error is not None
        and record.error.type in _HAPPENED
    ]
    return [retried, *again]


def _first_dropped(counting: list[tuple[int, AnyRecord]], ended: Ended) -> int:
    """Where the history that counts ends: at the failed step's outcome, at the cancel, or at what made the agent raise."""
    backwards = counting[::-1]
    if ended.status == "cancelled":
        for number, record in backwards:
            if isinstance(record, Cancelled):
                return number
    if ended.error is not None and ended.error.position:
        for number, record in backwards:
            if isinstance(record, Executed) and record.position == ended.error.position and record.error is not None:
                return number
    return ended.main_done_at or next(number for number, record in counting if record is ended)
