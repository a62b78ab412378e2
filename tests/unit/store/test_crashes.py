"""kill -9 anywhere: the store is sound afterwards, and what was acknowledged is there (Y8, Y9, Y14)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.store.support import run

import perdure.store.sqlite.store
from perdure.base import faults
from perdure.store.contract import Where

if TYPE_CHECKING:
    from perdure.store.sqlite.store import SqliteStore

CHILD = Path(__file__).with_name("crash_child.py")
VERBS = [
    "open",
    "migrate",
    "create",
    "append",
    "claim",
    "control",
    "register",
    "renew",
    "bury",
    "retire",
    "readmit",
    "park",
    "checkpoint",
    "close",
]
POINTS = sorted(point for point in faults.POINTS if point.partition(".")[0] in VERBS)
assert perdure.store.sqlite.store  # it registers them


def start(path: Path, prefix: str, what: str, fault: str = "", *command: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PERDURE_FAULTS": fault, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [*command, sys.executable, str(CHILD), str(path), prefix, what]
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(child: subprocess.Popen[str]) -> tuple[int, list[list[Any]]]:
    """How it ended and what it had been promised."""
    out, err = child.communicate()
    assert child.returncode in (0, -9), err
    return child.returncode, [json.loads(line) for line in out.splitlines()]


async def check(store: SqliteStore, said: list[list[Any]]) -> None:
    assert await store.check() == []
    workers = {worker.num for worker in await store.workers()}
    rows = {row.id: row for row in await store.runs(Where(), limit=1_000)}
    for word, *about in said:
        match word:
            case "created":
                assert about[0] in rows
            case "claimed":
                assert rows[about[0]].epoch >= about[1]
            case "appended":
                assert len(await store.journal(about[0])) >= about[1]
            case "asked":
                holder = rows[about[0]].worker
                assert holder is None or await store.controls(holder, after=0)
            case "readmitted":
                assert rows[about[0]].status in ("queued", "running")
            case "buried" | "retired":
                assert about[0] not in workers
            case _:
                pass


def test_every_point_of_the_store_is_known() -> None:
    """The matrix below is not empty by mistake."""
    assert len(POINTS) >= 50
    assert {point.partition(".")[0] for point in POINTS} == set(VERBS)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, tmp_path: Path) -> None:
    """A process that dies there leaves a sound store with all it had been promised; the next one does all its work."""
    path = tmp_path / "p.db"
    nth = 4 if point.startswith("append.") else 1
    code, said = ended(start(path, "first", "all", f"{point}:nth={nth}:kill"))
    assert code == -9, "the point was never reached"
    code, later = ended(start(path, "second", "all"))
    assert code == 0
    assert later[-1] == ["closed"]

    async def scenario(store: SqliteStore) -> None:
        await check(store, said + later)

    run(path, scenario)


def test_killed_without_closing_all_acknowledged_is_there(tmp_path: Path) -> None:
    """Before anybody else has opened it."""
    path = tmp_path / "p.db"
    code, said = ended(start(path, "first", "all", "close.before:kill"))
    assert code == -9
    assert len(said) > 30

    async def scenario(store: SqliteStore) -> None:
        await check(store, said)

    run(path, scenario)


def test_twenty_processes_create_one_id(tmp_path: Path) -> None:
    """On a file that none of them finds: one makes the run, all see it."""
    path = tmp_path / "p.db"
    children = [start(path, f"c{n}", "create") for n in range(20)]
    outcomes = [ended(child) for child in children]
    assert [code for code, _ in outcomes] == [0] * 20
    assert sum(["added", True] in said for _, said in outcomes) == 1

    async def scenario(store: SqliteStore) -> None:
        assert len(await store.runs(Where(), limit=100)) == 1
        assert await store.check() == []

    run(path, scenario)


@pytest.mark.parametrize(
    ("what", "first", "last"),
    [
        ("fdatasync:error=EIO", 2, 3),
        ("fdatasync:error=EIO", 9, 12),
        ("fdatasync:error=ENOSPC", 15, 40),
        ("pwrite64:error=ENOSPC", 60, 75),
        ("pwrite64:error=EIO", 90, 99),
        ("pwrite64:error=EDQUOT", 40, 48),
        ("fsync:error=EIO", 1, 3),
    ],
)
def test_failing_calls_lose_and_double_nothing(what: str, first: int, last: int, tmp_path: Path) -> None:
    """The disk refuses for a while: each append is repeated until it is acknowledged, and is stored once (Y9)."""
    path = tmp_path / "p.db"
    name = what.partition(":")[0]
    inject = f"inject={what}:when={first}..{last}"
    command = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", f"trace={name}", "-e", inject]
    child = start(path, "r", "stubborn", "", *command)
    out, err = child.communicate()
    assert child.returncode == 0, err
    said = [json.loads(line) for line in out.splitlines()]
    assert "INJECTED" in (tmp_path / "trace").read_text()
    assert [words[2] for words in said if words[0] == "appended"] == list(range(1, 21))

    async def scenario(store: SqliteStore) -> None:
        row = await store.run("r")
        assert row is not None
        assert len(await store.journal(row.num)) == 20
        assert await store.check() == []

    run(path, scenario)


def test_an_append_is_one_fdatasync(tmp_path: Path) -> None:
    """One commit of one run costs one fdatasync of the WAL, never less (counted by strace)."""
    path = tmp_path / "p.db"
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-y", "-o", str(trace), "-e", "trace=fdatasync,fsync,write"]
    code, _ = ended(start(path, "r", "stubborn", "", *command))
    assert code == 0
    text = trace.read_text()
    between = re.split(r'write\(1<[^>]*>, "\[\\"appended\\"', text)
    assert len(between) == 21
    for part in between[1:-1]:
        syncs = re.findall(r"(?:fdatasync|fsync)\(\d+<([^>]*)>", part)
        assert syncs == [f"{path}-wal"], part
