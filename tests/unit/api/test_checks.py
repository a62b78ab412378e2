"""What callers pass is checked before anything reaches the store."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure, UsageError, agent
from perdure.api import checks
from perdure.api.views import time_text
from perdure.store.contract import Where


@agent
async def sample() -> int:
    return 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"id": 3},
        {"id": "a\nb"},
        {"queue": ""},
        {"queue": 3},
        {"priority": "high"},
        {"priority": 1.5},
        {"priority": 2**70},
        {"delay": "soon"},
        {"delay": math.nan},
        {"delay": math.inf},
        {"tags": ["a"]},
        {"tags": {"a": 1}},
        {"nope": 1},
    ],
)
def test_options_of_a_start(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """A wrong option is named, and nothing is stored."""

    async def refused() -> None:
        async with Perdure(tmp_path / "p.db", worker=False) as app:
            with pytest.raises(UsageError) as caught:
                await app.start(sample, **wrong)
            assert next(iter(wrong)) in str(caught.value)
            assert await app.list() == []

    asyncio.run(refused())


@pytest.mark.parametrize(
    ("given", "means"),
    [
        (None, Where()),
        ({}, Where()),
        ({"status": "failed"}, Where(statuses=["failed"])),
        ({"status": ("failed", "parked")}, Where(statuses=["failed", "parked"])),
        ({"agent": sample}, Where(agents=["sample"])),
        ({"agent": ["sample", sample]}, Where(agents=["sample", "sample"])),
        ({"queue": "q", "id_prefix": "a"}, Where(queue="q", id_prefix="a")),
        ({"tags": {"team": "a"}}, Where(tags={"team": "a"})),
        ({"created_after": datetime(1970, 1, 1, 0, 1, tzinfo=UTC)}, Where(created_after=60.0)),
        ({"created_before": 60}, Where(created_before=60.0)),
    ],
)
def test_a_filter(given: Any, means: Where) -> None:
    """One value or several; an agent by its name or as it is."""
    assert checks.where(given) == means


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("failed", "is a dict such as"),
        (["failed"], "is a dict such as"),
        ({"state": "failed"}, "no field 'state'"),
        ({"status": "done"}, "no status 'done'. Use queued, "),
        ({"status": 3}, "'status' is text"),
        ({"queue": ["a"]}, "'queue' is text"),
        ({"tags": "a"}, "tags are"),
        ({"id_prefix": 3}, "'id_prefix' is text"),
        ({"created_after": datetime(2026, 1, 1)}, "with a time zone"),  # no zone is the point
    ],
)
def test_a_filter_that_makes_no_sense(given: Any, said: str) -> None:
    """A wrong field or value is named; it never finds nothing in silence."""
    with pytest.raises(UsageError) as caught:
        checks.where(given)
    assert said in str(caught.value)


@pytest.mark.parametrize("at", [1e12, 1e300, math.inf])
def test_a_time_beyond_the_calendar_is_shown(at: float) -> None:
    """An endless sleep of one run does not break the list of all."""
    assert time_text(at) == "9999-12-31T23:59:59.000Z"


@pytest.mark.parametrize("wrong", [None, 3, b"x"])
def test_a_store_is_a_path_or_a_url(wrong: Any) -> None:
    """Anything else never becomes a file of that name."""
    with pytest.raises(UsageError, match="a path or a URL"):
        Perdure(wrong)


@pytest.mark.parametrize("wrong", [-1, "x", True])
def test_a_limit_is_a_number_of_runs(wrong: Any) -> None:
    """None is all of them."""
    assert checks.limit(None) is None
    with pytest.raises(UsageError, match="number of runs"):
        checks.limit(wrong)


def test_a_note_is_text() -> None:
    """Refused before it is recorded."""
    with pytest.raises(UsageError, match="a note is text"):
        checks.note(3)
