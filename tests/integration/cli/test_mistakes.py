"""A user's mistake gets a good answer: what, why, what to do; its exit code; never a traceback."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

# Root writes where nobody may. Without its capabilities it is like anybody, and still reads what is its own: a checkout
# below /root as well.
WITHOUT_PRIVILEGES = """
import ctypes, sys
version_3, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(version_3, none) == 0
from perdure.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:\n    pass\n", ("bad.py:1: SyntaxError", "def broken(:")),
        ("x = 1\nprint(undefined)\n", ("bad.py:2: NameError: name 'undefined' is not defined",)),
        ("import not_installed\n", ("bad.py:1: ModuleNotFoundError: No module named 'not_installed'",)),
        ("import sys\nsys.exit(3)\n", ("bad.py:2: SystemExit: 3",)),
        (
            "from perdure import agent\n\n@agent\ndef plain():\n    pass\n",
            ("bad.py:3: agent plain is not an `async def`",),
        ),
        (
            "from perdure import step\n\n@step(effect='twice')\nasync def s(): ...\n",
            ("bad.py:3: step s: effect='twice'",),
        ),
    ],
)
@pytest.mark.parametrize("command", [("run", "bad:a"), ("worker", "bad")])
def test_a_module_that_does_not_import(cli, text, words, command):
    """The file, the line and the last line of its own traceback."""
    cli.write("bad.py", text)
    err = cli(*command, code=2).err
    assert "bad does not import: " in err
    for word in words:
        assert word in err
    assert not (cli.folder / "perdure.db").exists()


def test_a_clock_that_the_module_keeps_in_a_table(cli):
    """The guard stands before the module is loaded: what it takes by name then is refused as well, with the line."""
    cli.write(
        "kept.py",
        "from datetime import datetime\nfrom perdure import agent\nTABLE = {'now': datetime.now}\n\n"
        "@agent\nasync def a():\n    return str(TABLE['now']())\n",
    )
    err = cli("run", "kept:a", code=1).err
    assert "kept.py:7: agent code uses datetime.datetime.now()" in err
    assert "run.now()" in err


def test_a_module_that_is_not_there(cli):
    """Where it was looked for, and what is there instead."""
    assert "there is no module 'nope'" in cli("run", "nope:a", code=3).err
    assert "app.py" in cli("run", "nope:a", code=3).err
    assert "there is no module 'app.inner' (its part" not in cli("run", "app.inner:a", code=3).err
    assert "there is no file nope.py" in cli("worker", "nope.py", code=3).err
    assert "dotted name" in cli("run", "no-pe:a", code=2).err
    cli.write("inner/json.py", "from perdure import agent\n")
    assert "name of another module" in cli("run", "inner/json.py:a", code=2).err


def test_an_agent_that_is_not_there(cli):
    """Close names are suggested; what is no agent is said to be so."""
    assert "there is no agent 'totl' in app. Did you mean 'total'?" in cli("run", "app:totl", code=3).err
    assert "agents in app: total, nap, mail" in cli("run", "app:xyzzy", code=3).err
    assert "'helper' in app is a function, not an agent" in cli("run", "app:helper", code=2).err
    assert "'add' in app is a step, not an agent" in cli("run", "app:add", code=2).err
    assert "names no agent" in cli("run", "app", code=2).err
    assert "leave ':total' out" in cli("worker", "app:total", code=2).err.lower()
    cli.write("empty.py", "")
    assert "empty has no agents" in cli("worker", "empty", code=2).err


def test_an_agent_whose_code_is_gone(cli):
    """The worker that misses it parks the run and says so; with the code back it goes on by itself."""
    cli.write("gone.py", "from perdure import agent\n\n@agent\nasync def vanish() -> int:\n    return 1\n")
    cli("run", "gone:vanish", "--id", "v", "--detach")
    text = cli.write("gone.py", "from perdure import agent\n\n@agent\nasync def other() -> int:\n    return 2\n")
    assert "run v parked (no_code)" in cli("worker", "gone", "--exit-when-idle").err
    shown = cli.show("v")
    assert (shown["status"], shown["reason"]) == ("parked", "no_code")
    page = cli("show", "v").out
    assert "lacks agent 'vanish' of module gone" in page
    assert "perdure worker gone" in page
    text.write_text("from perdure import agent\n\n@agent\nasync def vanish() -> int:\n    return 1\n")
    cli("worker", "gone", "--exit-when-idle")
    assert cli.show("v")["result"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hello"], "argument 1 is not JSON: Expecting value at character 1, near 'hello'. For text write '\"hello\"'"),
        (["1", "b=x y"], "argument 'b' is not JSON"),
        (["b=x y"], "For text write 'b=\"x y\"'"),
        (["{'a': 1}"], "Write names and texts in double quotes"),
        (["True"], "JSON writes it true"),
        (["[1,]"], "at character 4"),
        (["NaN"], "NaN is no JSON number"),
        (["a=1", "a=2"], "argument 'a' is given twice"),
        ([], "missing a required argument: 'a'. It takes total(a: int, b: int = 2)"),
        (["1", "2", "3"], "too many positional arguments"),
        (["c=1", "a=1"], "unexpected keyword argument 'c'"),
        (['"one"'], "argument 'a': Expected `int`, got `str`"),
    ],
)
def test_arguments_that_do_not_fit(cli, words, said):
    """The place of the mistake and how it is written right; nothing is stored."""
    ended = cli("run", "app:total", *words, code=2)
    assert said in ended.err
    assert ended.out == ""
    assert not (cli.folder / "perdure.db").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--delay", "inf"], "a delay is"),
        (["--delay", "-1"], "--delay -1 is below 0"),
        (["--timeout", "nan"], "--timeout nan"),
        (["--timeout", "0"], "--timeout 0"),
        (["--priority", "9" * 30], "a priority is"),
        (["--queue", ""], "a queue's name"),
        (["--id", ""], "a run's id"),
    ],
)
def test_options_out_of_bounds(cli, words, said):
    """Each is named before a store is made."""
    assert said in cli("run", "app:total", "1", *words, code=2).err
    assert not (cli.folder / "perdure.db").exists()


def test_arguments_inside_a_value_are_found(cli):
    """The path inside the object is named."""
    assert "$.count" in cli("run", "app:order", '{"item": "tea", "count": "two"}', code=2).err


def test_commands_and_options(cli):
    """Unknown ones are named, near ones suggested; those of the face that are still to come are said to be so."""
    assert "Did you mean `perdure history`" in cli("histroy", "x", code=2).err
    assert "there is no command 'xyzzy'" in cli("xyzzy", code=2).err
    assert "`perdure logs` is not there yet in this version" in cli("logs", "x", code=2).err
    assert "No such option: --sotre" in cli("ps", "--sotre", "x", code=2).err
    assert "Missing argument 'ID'" in cli("show", code=2).err
    assert "there is no status 'done'" in cli("ps", "--status", "done", code=2).err
    assert "no signal 'USR1'" in cli("kill", "-USR1", "x", code=2).err
    assert "--tag 'x'" in cli("run", "app:total", "1", "--tag", "x", code=2).err
    helped = cli("--help").out
    assert "  resolve " in helped
    assert not [word for word in ("logs", "doctor", "serve") if f"  {word} " in helped]


def test_a_run_that_is_not_there(cli):
    """With a store and without; no look creates one."""
    assert "there is no store" in cli("show", "x", code=3).err
    assert (cli("ps", "--json").out, (cli.folder / "perdure.db").exists()) == ("", False)
    cli("run", "app:total", "1", "--id", "t")
    for words in (("show", "x"), ("history", "x"), ("pause", "x"), ("resolve", "x", "1", "--retry")):
        assert "there is no run 'x'" in cli(*words, code=3).err


def test_the_beginning_of_an_id(cli):
    """A unique beginning is enough; an ambiguous one lists the candidates."""
    cli("run", "app:total", "1", "--id", "tides-1", "--detach")
    cli("run", "app:total", "1", "--id", "tides-2", "--detach")
    assert cli.show("tides-2")["id"] == "tides-2"
    err = cli("show", "ti", code=2).err
    assert "tides-1" in err
    assert "tides-2" in err
    cli("run", "app:total", "1", "--id", "tides", "--detach")
    assert cli.show("tides")["id"] == "tides"  # a whole id is not ambiguous


def test_control_that_makes_no_sense(cli):
    """Refused with the run's state; the other runs of the same command are still served."""
    cli("run", "app:total", "1", "--id", "done")
    cli("run", "app:total", "1", "--id", "new", "--detach")
    assert "done" in cli("pause", "done", code=4).err
    assert "only a failed or cancelled run can be tried again" in cli("retry", "new", code=4).err
    assert "no step '1' in doubt" in cli("resolve", "done", "1", "--done", "1", code=4).err
    assert "needs one of" in cli("resolve", "done", "1", code=2).err
    assert "--done is not JSON" in cli("resolve", "done", "1", "--done", "x", code=2).err
    ended = cli("pause", "done", "nope", "new", code=4)
    assert "new: pause accepted; it is paused" in ended.out
    assert "there is no run 'nope'" in ended.err
    assert cli.show("new")["status"] == "paused"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("-STOP",), "paused"),
        (("-TERM",), "cancelled"),
        ((), "cancelled"),
        (("-9",), "cancelled"),
        (("-s", "stop"), "paused"),
    ],
)
def test_kill_speaks_as_kill_does(cli, words, status):
    """-TERM cancels, -KILL ends, -STOP pauses, -CONT resumes."""
    cli("run", "app:total", "1", "--id", "t", "--detach")
    assert cli("kill", *words, "t", "--json").json()["status"] == status
    if status == "paused":
        assert cli("kill", "-CONT", "t", "--json").json()["status"] == "queued"


def test_settings_that_are_wrong(cli):
    """A misspelt setting is an error, and so is a value of the wrong kind."""
    assert "PERDURE_LEASE_TTL_S is to be a number" in cli("worker", "app", env={"PERDURE_LEASE_TTL_S": "x"}, code=2).err
    cli.write("perdure.toml", "stroe = 'x.db'\n")
    assert "there is no setting 'stroe'" in cli("ps", code=2).err
    cli.write("perdure.toml", "store = \n")
    assert "perdure.toml is not TOML" in cli("ps", code=2).err


def test_where_settings_come_from(cli):
    """Flag before environment before file before default."""
    cli.write("pyproject.toml", "[tool.perdure]\nstore = 'project.db'\n")
    cli("run", "app:total", "1")
    cli.write("perdure.toml", "store = 'file.db'\n")
    cli("run", "app:total", "1")
    cli("run", "app:total", "1", env={"PERDURE_STORE": "env.db"})
    cli("--store", "flag.db", "run", "app:total", "1", env={"PERDURE_STORE": "env.db"})
    made = {path.name for path in cli.folder.glob("*.db")}
    assert made == {"project.db", "file.db", "env.db", "flag.db"}
    assert [len(cli("ps", "--json", "--store", name).lines()) for name in sorted(made)] == [1, 1, 1, 1]


def test_a_store_that_cannot_be_one(cli):
    """What stands at the path is no store: 5. The URL itself is wrong, or of a later version: 2."""
    cli.write("folder/x", "")
    cli.write("text.db", "this is a text\n" * 100)
    with sqlite3.connect(cli.folder / "other.db") as db:
        db.execute("CREATE TABLE cats (name)")
    for store, said, code in (
        ("folder", "this is a folder", 5),
        ("text.db", "not a SQLite database", 5),
        ("other.db", "belongs to another application", 5),
        ("nowhere/x.db", "does not exist", 5),
        ("postgresql://x/y", "not there yet", 2),
        ("mysql://x/y", "unknown kind of store", 2),
    ):
        for words in (("ps",), ("run", "app:total", "1"), ("worker", "app")):
            assert said in cli(*words, *(("--store", store)), code=code).err


def _made(cli) -> Path:
    cli("run", "app:total", "1", "--id", "t")
    return cli.folder / "perdure.db"


def test_a_store_of_a_newer_perdure(cli):
    """Refused, and nothing is changed."""
    path = _made(cli)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    for words in (("ps",), ("run", "app:total", "1"), ("worker", "app"), ("pause", "t")):
        assert "newer" in cli(*words, code=5).err


def test_a_damaged_store(cli):
    """Damage is named, and the way out."""
    path = _made(cli)
    for leftover in cli.folder.glob("perdure.db-*"):
        leftover.unlink()
    with path.open("r+b") as file:
        file.seek(8192 * 2)
        file.write(b"\xa5" * 8192 * 2)
    for words in (("ps",), ("run", "app:total", "1"), ("worker", "app")):
        assert "Restore a backup" in cli(*words, code=5).err


def test_a_store_that_another_program_locks(cli):
    """The answer comes after a few seconds, not never."""
    path = _made(cli)
    browser = sqlite3.connect(path, isolation_level=None)
    browser.execute("PRAGMA journal_mode = delete")
    browser.execute("BEGIN EXCLUSIVE")
    try:
        assert "another program keeps the store locked" in cli("ps", code=5).err
    finally:
        browser.close()


def test_a_full_disk(cli):
    """A worker does not start on it."""
    cli.program = [
        sys.executable,
        "-c",
        """
import os, sys, types
from perdure.cli.main import main
os.statvfs = lambda path: types.SimpleNamespace(f_bavail=0, f_frsize=4096)
sys.exit(main())
""",
    ]
    assert "disk is full" in cli("run", "app:total", "1", code=5).err


@pytest.mark.parametrize("target", ["file", "folder"])
def test_a_read_only_store(cli, target):
    """The file or its folder: what to change is named."""
    cli("run", "app:total", "1", "--id", "t")
    place = cli.folder / "place"
    place.mkdir()
    for name in ("app.py", "perdure.db"):
        shutil.copy(cli.folder / name, place / name)
    (place / "perdure.db").chmod(0o444 if target == "file" else 0o666)
    place.chmod(0o777 if target == "file" else 0o555)
    try:
        cli.folder = place
        cli.program = [sys.executable, "-c", WITHOUT_PRIVILEGES]
        for words in (("ps",), ("run", "app:total", "1")):
            assert "read-only" in cli(*words, code=5).err
    finally:
        place.chmod(0o777)  # pytest clears up
