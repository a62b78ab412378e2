"""`ps`, `show`, `history` for people: tables that are the same in a pipe, colour on a terminal only."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import termios


def _on_a_terminal(cli, *words: str, env: dict[str, str] | None = None, columns: int = 80) -> str:
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, columns))
    variables = cli.env | {"TERM": "xterm-256color"} | (env or {})
    process = subprocess.Popen([*cli.program, *words], cwd=cli.folder, env=variables, stdout=child, stderr=child)
    os.close(child)
    read = b""
    try:
        while data := os.read(parent, 65536):
            read += data
    except OSError:
        pass  # the other end is closed
    os.close(parent)
    assert process.wait() == 0
    return read.decode()


def test_many_runs_are_listed_page_by_page(cli):
    """The table shows the newest and says so; --limit 0 and --json show all."""
    cli.write(
        "many.py",
        "import asyncio\nfrom perdure import Perdure\nfrom app import total\n\n"
        "async def main():\n    async with Perdure(worker=False) as app:\n"
        "        for n in range(1203):\n            await app.start(total, n, id=f'r{n:05}')\n\nasyncio.run(main())\n",
    )
    subprocess.run([cli.program[0], "many.py"], cwd=cli.folder, env=cli.env, check=True)
    page = cli("ps")
    assert len(page.out.splitlines()) == 101
    assert page.out.splitlines()[1].startswith("r01202")
    assert "the 100 newest" in page.err
    assert len(cli("ps", "--limit", "0").out.splitlines()) == 1204
    lines = cli("ps", "--json").lines()
    assert [line["id"] for line in lines] == [f"r{n:05}" for n in reversed(range(1203))]
    assert len(cli("ps", "--json", "--limit", "7").lines()) == 7


def test_runs_are_filtered(cli):
    """By status and by agent, several of each."""
    cli("run", "app:total", "1", "--id", "t")
    cli("run", "app:grumpy", "--id", "g", code=1)
    cli("run", "app:total", "1", "--id", "q", "--detach")
    for words, ids in (
        (("--status", "failed"), {"g"}),
        (("--status", "failed", "--status", "queued"), {"g", "q"}),
        (("--agent", "total"), {"t", "q"}),
        (("--agent", "total", "--status", "queued"), {"q"}),
        (("--queue", "other"), set()),
    ):
        assert {line["id"] for line in cli("ps", "--json", *words).lines()} == ids


def test_colour_is_for_terminals(cli):
    """A terminal gets colour unless NO_COLOR is set; a pipe gets the same table without."""
    cli("run", "app:total", "1", "--id", "t")
    coloured = _on_a_terminal(cli, "ps")
    assert "\x1b[32mcompleted" in coloured
    assert "\x1b[3" not in _on_a_terminal(cli, "ps", env={"NO_COLOR": "1"})
    piped = cli("ps").out
    assert "\x1b" not in piped
    assert piped.splitlines()[1].split()[:3] == ["t", "total", "completed"]


def test_progress_on_a_terminal_ends_clean(cli):
    """The live line is gone at the end, the cursor is back, the result is the last line."""
    shown = _on_a_terminal(cli, "run", "app:total", "1")
    assert shown.rstrip().endswith("3")
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l") >= 0
    assert "step 1 add: done" in shown


def test_what_is_stored_cannot_steer_a_terminal(cli):
    """Control characters in stored text are not printed."""
    cli.write(
        "nasty.py",
        "from perdure import agent\n\n@agent\nasync def bad() -> None:\n    raise ValueError('a\\x1b[2Jb')\n",
    )
    run = cli("run", "nasty:bad", "--id", "b", code=None)
    assert run.code == 1
    for text in (run.err, cli("ps").out, cli("show", "b", code=None).out, cli("history", "b").out):
        assert "\x1b" not in text


def test_a_number_of_thousands_of_digits_is_printed(cli):
    """Python's own limit for digits does not stand in the way."""
    cli.write("huge.py", "from perdure import agent\n\n@agent\nasync def huge() -> int:\n    return 10**6000\n")
    assert cli("run", "huge:huge").out == "1" + "0" * 6000 + "\n"


def test_a_page_says_what_to_do(cli):
    """`show` of a failed, a paused and a queued run names the next command, with the store that was given."""
    cli("run", "app:grumpy", "--id", "g", "--store", "x.db", code=1)
    cli("run", "app:total", "1", "--id", "q", "--store", "x.db", "--detach")
    assert "perdure --store x.db retry g" in cli("show", "g", "--store", "x.db").out
    assert "perdure --store x.db worker app" in cli("show", "q", "--store", "x.db").out
    cli("pause", "q", "--store", "x.db")
    assert "perdure --store x.db resume q" in cli("show", "q", "--store", "x.db").out


def test_a_note_is_kept(cli):
    """`resume --note` is in the history."""
    cli("run", "app:dream", "3600", "--id", "d", "--exit-when-idle")
    cli("pause", "d")
    cli("resume", "d", "--note", "go gently")
    cli("run", "app:dream", "--id", "d", "--exit-when-idle")
    assert "go gently" in [
        entry["result"] for entry in cli("history", "d", "--json").lines() if entry["kind"] == "note"
    ]


def test_the_help_is_quick(cli):
    """Neither rich, pydantic, the driver nor the runtime is loaded to show the help."""
    code = (
        "import sys\nsys.argv = ['perdure', '--help']\nfrom perdure.cli.main import main\nmain()\n"
        "heavy = ('rich', 'pydantic', 'apsw', 'uvloop', 'msgspec', 'perdure.api')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([cli.program[0], "-c", code], env=cli.env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_commands_load_no_more_than_they_need(cli):
    """The parser does not bring pydantic along, and a look at the store no worker."""
    code = (
        "import sys\nsys.argv = ['perdure', 'ps', '--json']\nfrom perdure.cli.main import main\nmain()\n"
        "heavy = ('rich', 'pydantic', 'uvloop', 'perdure.worker.worker')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [cli.program[0], "-c", code], cwd=cli.folder, env=cli.env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_narrow_terminal_cuts_no_number_and_no_status(cli):
    """Only the last column gives way; the others are what a pipe gets."""
    cli("run", "app:nap", "0", "--id", "a-rather-long-id-of-a-run")
    for words in (("history", "a-rather-long-id-of-a-run"), ("ps",)):
        piped = [_cells(text) for text in cli(*words).out.splitlines()]
        for columns in (60, 100):
            shown = _on_a_terminal(cli, *words, env={"NO_COLOR": "1"}, columns=columns)
            lines = [_cells(re.sub(r"\x1b\[[0-9;]*m", "", text)) for text in shown.splitlines()]
            assert [cells[:4] for cells in lines] == [cells[:4] for cells in piped]
            assert len(lines[0]) >= len(piped[0]) - 1


def _cells(text: str) -> list[str]:
    """A row's cells, but for what the clock says."""
    return re.split(r"\s{2,}", re.sub(r"<?\s*\d+ s ago", "", text).strip())


def test_the_live_line_says_what_the_agent_says(cli):
    """`run.progress(…, current)` is on it; what is no number of anything is left out, in JSON too."""
    cli.write(
        "far.py",
        "from perdure import agent, run, step\n\n@step\nasync def one() -> None: ...\n\n"
        "@agent\nasync def far(total: float) -> None:\n    run.progress(1, total, 'page one')\n    await one()\n\n"
        "@agent\nasync def endless() -> None:\n    run.progress(1, float('inf'))\n\n"
        "@agent\nasync def lost() -> None:\n    run.progress(float('nan'), 3)\n",
    )
    shown = _on_a_terminal(cli, "run", "far:far", "4", "--id", "far", env={"NO_COLOR": "1"}, columns=30)
    lives = [part for part in re.split(r"\r|\n|\x1b\[2K", shown) if "running" in part]
    assert all(len(re.sub(r"\x1b\[[0-9;?]*[a-z]", "", part)) <= 30 for part in lives)
    assert cli.show("far")["progress"]["current"] == "page one"
    cli("run", "far:endless", "--id", "endless")
    assert (cli.show("endless")["progress"]["done"], cli.show("endless")["progress"]["total"]) == (1, None)
    cli("run", "far:lost", "--id", "lost")
    assert cli.show("lost")["progress"]["done"] is None


def test_the_help_shows_arguments_as_they_are_typed(cli):
    """No brackets or types that nobody types."""
    assert "Usage: perdure run [OPTIONS] MODULE:AGENT [JSON | NAME=JSON]…\n" in cli("run", "--help").out
    for command in ("run", "worker", "ps", "show", "history", "kill", "resolve"):
        helped = cli(command, "--help").out
        assert "<" not in helped
        assert "{" not in helped
