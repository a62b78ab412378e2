"""SIGKILL after every commit, a fresh process each time: the run ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.testing.crash import CrashKit, Start

HERE = Path(__file__).resolve().parent
EXPECTED = {
    "quick_gather": [[n, n, f"{n} again"] for n in range(3)],
    "quick_group": "end",
    "quick_race": [True, True, True],
    "quick_timeout": ["timeout 0", "timeout 1", "timeout 2"],
    "quick_queue": [0, 1, 2, 3, 4],
    "quick_generator": 3,
    "quick_lock": [0, 1, 2],
    "quick_completed": [0, 1, 2, 3, 4],
}


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    with CrashKit([HERE / "quick_agents.py"], tmp_path_factory.mktemp("processes")) as kit:
        yield kit


@pytest.mark.parametrize("agent", EXPECTED)
def test_killed_after_each_commit(kit: CrashKit, agent: str, tmp_path: Path) -> None:
    """Killed once, after its first commit, its second, …: result, status and steps are right, and each key stands
    for one effect."""
    for nth in range(1, 200):
        store, book = tmp_path / f"{nth}.db", tmp_path / f"{nth}.book"
        process = kit.run(store, Start(agent, "r", [str(book)]), faults=f"writer.after_commit:nth={nth}:kill")
        died = process.wait() != 0
        if died:
            assert kit.run(store).wait() == 0
        look = kit.look(store, "r")
        assert (look.status, look.result) == ("completed", EXPECTED[agent]), nth
        _assert_effects(look.history, book, repeats=1 if died else 0)
        if not died:
            assert nth > 3
            return
    raise AssertionError("it never came to an end without being killed")


def test_killed_again_and_again(kit: CrashKit, tmp_path: Path) -> None:
    """Eight runs at once, in processes that each live for four commits only: all of them come to their end."""
    store = tmp_path / "all.db"
    starts = [Start(agent, agent, [str(tmp_path / f"{agent}.book")]) for agent in EXPECTED]
    deaths = 0
    while kit.run(store, *starts, faults="writer.after_commit:nth=4:kill").wait() != 0:
        deaths += 1
        assert deaths < 500
    for agent, expected in EXPECTED.items():
        look = kit.look(store, agent)
        assert (look.status, look.result) == ("completed", expected)
        _assert_effects(look.history, tmp_path / f"{agent}.book", repeats=deaths)
    assert deaths > 3


def _assert_effects(history: list, book: Path, *, repeats: int) -> None:
    """A key has one tag only; an effect happened, and at most once more for each death."""
    lines = [line.partition(" ")[::2] for line in book.read_text(encoding="utf-8").splitlines()]
    tags: dict[str, set[str]] = {}
    for key, tag in lines:
        tags.setdefault(key, set()).add(tag)
    assert all(len(each) == 1 for each in tags.values())
    decided = {entry.key for entry in history if entry.kind == "step" and entry.effect != "read"}
    assert {entry.key for entry in history if entry.kind == "step" and entry.state != "executed"} == set()
    assert set(tags) == decided
    assert len(lines) <= len(tags) * (1 + repeats)
