"""`perdure demo`: real processes, real SIGKILL, counts from the ledger's own file."""

from __future__ import annotations

import os
import pty
import re
import signal
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest

from perdure.cli.showcase.counts import Counts, read

QUICK = """
import sys
from perdure.cli import demo
from perdure.cli.showcase import scenes
{more}
sys.exit(demo.perform({store!r}, plain={plain}, pace=scenes.Pace(night_s=2.0, look_s=0.1)))
"""
DEADLINE_S = 60.0


def _quick(folder: Path, *, store: str | None = None, plain: bool = True, more: str = "") -> list[str]:
    script = folder / "quick.py"
    script.write_text(QUICK.format(store=store, plain=plain, more=more), encoding="utf-8")
    return [sys.executable, str(script)]


def _environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    return kept | {"TMPDIR": str(folder)} | more


def _processes(folder: Path) -> list[str]:
    """The command lines of live processes that name this test's folder, apart from the demo itself."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word.startswith(str(folder)) for word in words) and "quick.py" not in " ".join(words):
            found.append(" ".join(words))
    return found


def test_the_demo_ends_well(tmp_path: Path) -> None:
    """The command itself, without a terminal: plain lines, three kills, nothing lost, doubled or left behind."""
    command = [sys.executable, "-m", "perdure.cli.main", "demo"]
    done = subprocess.run(
        command, env=_environment(tmp_path), capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert done.stdout.count("kill -9") == 3
    for line in (
        "nothing lost, nothing doubled",
        "3 workers killed with SIGKILL, 4 started",
        "effects: 5 decided, 5 applied, 0 lost, 0 doubled",
        "calls: 8; 3 came again after a kill",
        "look-ups: 3 decided, 3 made",
    ):
        assert line in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert _processes(tmp_path) == []


def test_a_kept_run_can_be_looked_at(tmp_path: Path) -> None:
    """With --store the run stays, and the command that is named at the end shows its history."""
    store = str(tmp_path / "kept.db")
    done = subprocess.run(
        _quick(tmp_path, store=store), env=_environment(tmp_path), capture_output=True, text=True, check=True
    )
    named = re.search(r"perdure (history \S+ --store \S+)", done.stdout)
    assert named is not None, done.stdout
    shown = subprocess.run(
        [sys.executable, "-m", "perdure.cli.main", *named[1].split()], capture_output=True, text=True, check=True
    )
    assert [shown.stdout.count(f"tell {name}: done") >= 1 for name in ("Ada", "Ben", "Cleo", "Dov")] == [True] * 4


def test_a_ledger_that_applies_twice_is_noticed(tmp_path: Path) -> None:
    """Negative control: where the same key does not protect, the count shows it, and the exit code is 1."""
    more = """
hold = scenes.Play._hold
def careless(self, *names):
    hold(self, *names)
    for name in names:
        self._book.without_dedupe(name)
scenes.Play._hold = careless
"""
    command = _quick(tmp_path, more=more)
    done = subprocess.run(command, env=_environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "SOMETHING IS WRONG" in done.stdout
    assert "0 lost, 3 doubled" in done.stdout


def test_a_worker_that_does_not_start_is_told(tmp_path: Path) -> None:
    """What the worker said on its last lines is shown; exit 1, and no process stays."""
    more = "scenes.agent.__name__ = 'no_such_module'"
    command = _quick(tmp_path, more=more)
    done = subprocess.run(command, env=_environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the demo did not come to its end" in done.stderr
    assert "no_such_module" in done.stderr
    assert _processes(tmp_path) == []


def test_stopping_the_demo_stops_its_processes(tmp_path: Path) -> None:
    """SIGTERM in the middle: its worker and its ledger end with it, and its folder is removed."""
    demo = subprocess.Popen(
        [sys.executable, "-u", *_quick(tmp_path)[1:]],
        env=_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    while "kill -9" not in (line := demo.stdout.readline()):
        assert line, "the demo ended before its first kill"
    demo.send_signal(signal.SIGTERM)
    demo.communicate()
    assert demo.returncode != 0
    assert [path.name for path in tmp_path.iterdir()] == ["quick.py"]
    assert _processes(tmp_path) == []


def _on_a_terminal(command: list[str], environment: dict[str, str], columns: int, lines: int) -> tuple[int, str]:
    pid, master = pty.fork()
    if not pid:
        os.execve(command[0], command, environment)
    ioctl(master, TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(master)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode()


@pytest.mark.parametrize(("no_color", "columns", "lines"), [(True, 80, 24), (False, 100, 30)])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_picture_fits_the_terminal(tmp_path: Path, no_color: bool, columns: int, lines: int) -> None:
    """On a terminal it is a live frame, never wider than the terminal; colours only without NO_COLOR."""
    more = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(lines), "PYTHONIOENCODING": "utf-8"}
    if no_color:
        more["NO_COLOR"] = "1"
    environment = _environment(tmp_path, **more)
    code, seen = _on_a_terminal(_quick(tmp_path, plain=False), environment, columns, lines)
    assert code == 0, seen[-2000:]
    colours = {text for text in re.findall(r"\x1b\[([\d;]*)m", seen) if re.search(r"\b(3\d|38|9\d)\b", text)}
    assert bool(colours) is not no_color
    rows = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", seen).replace("\r", "\n").splitlines()
    assert max(map(len, rows)) <= columns
    last = rows[max(number for number, row in enumerate(rows) if "perdure demo" in row) :]
    assert any("nothing lost, nothing doubled" in row for row in last)
    assert len([row for row in last if row.strip()]) < lines


def test_counts_are_taken_from_complete_lines(tmp_path: Path) -> None:
    """Doubled and lost effects are counted by what happened; a line that is still being written waits."""
    file = tmp_path / "ledger.jsonl"
    line = '{"book":"b","name":"%s","key":"k","what":"%s"}\n'
    file.write_text("".join(line % (name, what) for name in ("a", "a", "c") for what in ("called", "applied")) + '{"bo')
    counts = read(file)
    assert counts == Counts(calls=("a", "a", "c"), applied=("a", "a", "c"))
    assert (counts.doubled({"a", "b", "c"}), counts.lost({"a", "b", "c"}), counts.of({"a"})) == (1, 1, 2)
    assert read(tmp_path / "none") == Counts()
