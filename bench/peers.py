"""Beside others: the same work in real runs of DBOS and LangGraph, in turn with ours within each round."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

import harness
import resume
from harness import Goal, Options, Row


@dataclass(frozen=True)
class Peer:
    name: str
    module: str
    script: str
    has_many: bool


PEERS = (
    Peer("DBOS, SQLite", "dbos", "peer_dbos.py", has_many=True),
    Peer("LangGraph, SQLite, sync", "langgraph", "peer_langgraph.py", has_many=False),
)
AHEAD = (Goal(1.0, "ratio"),)


def measure(options: Options) -> list[Row]:
    rows: list[Row] = []
    for peer in PEERS:
        if importlib.util.find_spec(peer.module) is None:
            rows.append(Row(peer.name, "", [], note=f"{peer.module} is not installed: make bench"))
            continue
        rows += [*_sequential(options, peer), *_latency(options, peer), *_many(options, peer), *_resume(options, peer)]
    return rows


def _rounds(options: Options) -> range:
    return range(options.of(3, 1))


def _sequential(options: Options, peer: Peer) -> list[Row]:
    ours, theirs = list[float](), list[float]()
    steps = options.of(1000, 200)
    for _ in _rounds(options):
        with harness.folder() as place:
            took, _ = harness.child("speed.py", "sequential", place=str(place), slices=1, steps=steps, writes=10)
            ours.append(took[0] * 1e6)
            theirs.append(harness.child(peer.script, "sequential", place=str(place), steps=steps) * 1e6)
    return [Row("sequential step", "µs", ours, peer.name, theirs, AHEAD)]


def _latency(options: Options, peer: Peer) -> list[Row]:
    ours, theirs = list[float](), list[float]()
    count = options.of(200, 50)
    for _ in _rounds(options):
        with harness.folder() as place:
            took, _ = harness.child("speed.py", "one_after_another", place=str(place), count=count, writes=10)
            ours.append(harness.percentile(took, 0.5) * 1e3)
            took = harness.child(peer.script, "one_after_another", place=str(place), count=count)
            theirs.append(harness.percentile(took, 0.5) * 1e3)
    return [Row("start → result, p50", "ms", ours, peer.name, theirs, AHEAD)]


def _many(options: Options, peer: Peer) -> list[Row]:
    if not peer.has_many:
        return []
    ours, theirs = list[float](), list[float]()
    runs = options.of(200, 50)
    for _ in _rounds(options):
        with harness.folder() as place:
            ours.append(harness.child("speed.py", "many", place=str(place), runs=runs, steps=5))
            theirs.append(harness.child(peer.script, "many", place=str(place), runs=runs, steps=5))
    goal = (Goal(1.0, "ratio", "least"),)
    return [Row(f"steps/s, {runs} runs of 5 steps, starts included", "/s", ours, peer.name, theirs, goal)]


def _resume(options: Options, peer: Peer) -> list[Row]:
    """Opening, recovery and replay up to the step that was left; both imports are paid for before."""
    ours, theirs = list[float](), list[float]()
    steps = options.of(2000, 300)
    with harness.folder() as place:
        mine, their = resume.journal(place, steps), _journal(peer, place / "peer", steps)
        for _ in _rounds(options):
            ours.append(resume.resumed_s(mine, place / "copy") * 1e3)
            shutil.copytree(their, place / "copy")
            theirs.append(harness.child(peer.script, "go_on", store=str(place / "copy" / "p.db")) * 1e3)
            shutil.rmtree(place / "copy")
    note = "it loads a snapshot, ours replays" if peer.module == "langgraph" else ""
    goals = () if note else AHEAD
    return [Row(f"resume after {steps:,} steps", "ms", ours, peer.name, theirs, goals, note)]


def _journal(peer: Peer, kept: Path, steps: int) -> Path:
    kept.mkdir()
    try:
        harness.child(peer.script, "write_journal", store=str(kept / "p.db"), steps=steps)
    except RuntimeError as exc:
        if "ended with 0 and no answer" not in str(exc):
            raise
    return kept
