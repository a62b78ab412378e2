"""Campaigns 3 and 4: a thousand random kills, forty zombies."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.crash import zombies
from tests.crash.random_kills import campaign

pytestmark = pytest.mark.campaign

KILLS = 1_000
SHARES = 4
ZOMBIES = 40


@pytest.mark.parametrize("share", range(SHARES))
def test_a_thousand_random_kills(case, share):
    """Three workers on one file, killed at any moment and at any fault point; a quarter of the thousand for each store."""
    sums = campaign(case, KILLS // SHARES, seed=100 + share)
    print(dict(sums))
    assert sums["kills"] >= KILLS // SHARES
    assert sums["reclaims"] >= 300 // SHARES, sums
    assert sums["runs"] >= 100 // SHARES, sums


def test_forty_zombies(new_case):
    """Frozen at every kind of moment, eight at a time: each is noticed, none changes anything, each doubt is shown."""
    chosen = list(itertools.islice(itertools.cycle(zombies.ZOMBIES), ZOMBIES))
    styles = itertools.cycle(("async", "plain"))
    with ThreadPoolExecutor(8) as pool:
        played = [
            pool.submit(zombies.play, new_case, zombie, style) for zombie, style in zip(chosen, styles, strict=False)
        ]
    for one in played:
        one.result()
