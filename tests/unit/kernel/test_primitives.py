"""asyncio as it is, on a run's loop: it does what plain asyncio does, and the same again from every place where it
was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kernel.conftest import load, plain

from perdure.testing.replay import Play, Script, play, replay_prefixes

primitives = load("primitive_agents")
NAMES = sorted(primitives.AGENTS)

# Plain asyncio visits a set of tasks by their addresses; here the order is that of their creation.
UNORDERED_ON_PLAIN = {"task_group_failing", "task_group_cancelled_from_outside", "task_group_nested"}
# Plain asyncio closes an abandoned generator when the collector meets it, and may not finish that; a run closes it
# when it ends.
CLOSED_BY_COLLECTOR = {"abandoned_generator", "generators"}
# Steps that are stopped together end one after the other, because each end is a record; a gathering sees the first.
STOPPED_ONE_BY_ONE = {"gather_cancelled"}

ORDERS = {
    "first asked first": Script(order="fifo"),
    "last asked first": Script(order="lifo"),
    "timers first": Script(order="fifo", timers="first"),
    "random 1": Script(order="random", timers="mixed", seed=1),
    "random 2": Script(order="random", timers="mixed", seed=2),
    "in time": Script(order="timed"),
    "in time, effects cannot be stopped": Script(order="timed", stopped="done"),
    "random, effects cannot be stopped": Script(order="random", timers="mixed", stopped="done", seed=3),
}


def scripted(script: Script, **changes: Any) -> Script:
    return replace(script, steps=primitives.SCRIPTED, seconds=primitives.seconds_of, **changes)


def outcome(played: Play) -> tuple[str, Any]:
    return played.status, played.result


def unordered(value: Any) -> Any:
    return sorted(map(repr, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("name", NAMES)
def test_it_does_what_plain_asyncio_does(name: str) -> None:
    """With results and timers arriving at the same times, status, result, order and times are those of plain
    asyncio."""
    agent = primitives.AGENTS[name]
    ours, theirs = outcome(play(agent, script=scripted(ORDERS["in time"]))), plain(agent)
    if name in UNORDERED_ON_PLAIN:
        ours, theirs = (ours[0], unordered(ours[1])), (theirs[0], unordered(theirs[1]))
    if name in CLOSED_BY_COLLECTOR:
        ours, theirs = ours[:1], theirs[:1]
    assert ours == theirs


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_every_position_it_ends_the_same(name: str, order: str) -> None:
    """From every prefix of its journal the run writes the rest of it again, byte by byte, calling only what has no
    result (J3, J5)."""
    script = scripted(ORDERS[order])
    whole = play(primitives.AGENTS[name], script=script)
    assert whole.ended is not None
    replay_prefixes(primitives.AGENTS[name], whole=whole, script=script)


def _middles(whole: Play, at_most: int) -> list[float]:
    times = sorted({record.at - 1_000.0 for record in whole.records})
    middles = [0.0005, *((early + late) / 2 for early, late in pairwise(times))]
    return middles[:: max(1, len(middles) // at_most)]


@pytest.mark.parametrize("name", NAMES)
def test_a_cancelled_run_does_what_a_cancelled_task_does(name: str) -> None:
    """Cancelled at several moments, the agent sees and does what it does when a plain task is cancelled then; and
    replays so."""
    agent, script = primitives.AGENTS[name], scripted(ORDERS["in time"])
    for after_s in _middles(play(agent, script=script), 5):
        primitives.Log.last = []
        theirs = (plain(agent, cancel_after_s=after_s), sorted(map(repr, primitives.Log.last)))
        primitives.Log.last = []
        cancelled = replace(script, cancel_after_s=after_s)
        whole = play(agent, script=cancelled)
        ours = (outcome(whole), sorted(map(repr, primitives.Log.last)))
        if name not in CLOSED_BY_COLLECTOR | STOPPED_ONE_BY_ONE:
            if name in UNORDERED_ON_PLAIN:
                ours, theirs = ours[1:], theirs[1:]
            assert ours == theirs, after_s
        replay_prefixes(agent, whole=whole, script=cancelled)


@pytest.mark.parametrize("name", NAMES)
def test_cancelled_after_any_record_it_replays(name: str) -> None:
    """A cancellation may enter after any record, also while effects cannot be stopped: every prefix of that ends
    the same."""
    agent = primitives.AGENTS[name]
    length = len(play(agent, script=scripted(ORDERS["first asked first"])).journal)
    for number, order in enumerate(("first asked first", "random, effects cannot be stopped", "timers first")):
        for at in range(1 + number, length, max(1, length // 4)):
            script = scripted(ORDERS[order], cancel_at=at)
            whole = play(agent, script=script)
            assert whole.ended is not None
            replay_prefixes(agent, whole=whole, script=script)


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_other_hash_seeds_change_nothing(hash_seed: str) -> None:
    """In a process with another PYTHONHASHSEED every run writes the same journal, and goes on from every prefix of
    this one's."""
    here = {
        f"{name}/{order}": [record.hex() for record in play(agent, script=scripted(ORDERS[order])).journal]
        for name, agent in primitives.AGENTS.items()
        for order in ("in time", "random 1")
    }
    command = [sys.executable, str(Path(__file__).with_name("other_process.py"))]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, input=json.dumps(here), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"runs": len(here), "different": []}
