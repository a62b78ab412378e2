"""Kills at any moment: a sample of the campaign."""

from __future__ import annotations

from tests.crash.random_kills import campaign


def test_a_hundred_random_kills(case):
    """Three workers on one file, killed a hundred times: nothing is lost, nothing is doubled, nothing is stuck, and something got done."""
    sums = campaign(case, 100, seed=1)
    assert sums["reclaims"] >= 20, sums
    assert sums["runs"] >= 10, sums
