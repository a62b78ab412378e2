"""Stopping and killing: nothing is lost, nothing hangs."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time

import pytest


def test_a_worker_killed_in_a_step_is_recovered_by_the_next(cli):
    """`kill -9` of a worker in the middle of a step; `worker --exit-when-idle` takes the run over and finishes it."""
    cli("run", "app:nap", "1.5", "--id", "n", "--detach")
    worker = cli.start("worker", "app")
    cli.began()
    worker.kill()
    assert cli.end(worker).code == -signal.SIGKILL
    cli("worker", "app", "--exit-when-idle")
    shown = cli.show("n")
    assert (shown["status"], shown["result"], shown["attempt"]) == ("completed", "slept7", 2)
    assert (cli.words("began"), cli.words("ended")) == (["1", "2"], ["x"])


def test_term_finishes_the_step_and_leaves_with_0(cli):
    """SIGTERM in a 5 s step with 30 s grace: the worker exits 0 as soon as the step is over and recorded."""
    cli("run", "app:nap", "5", "--id", "n", "--detach")
    worker = cli.start("worker", "app", "--grace-s", "30")
    cli.began()
    asked = time.monotonic()
    worker.terminate()
    ended = cli.end(worker)
    assert ended.code == 0
    assert time.monotonic() - asked < 15  # 5.1 s on an idle machine; the grace time would be 30
    entries = {entry["name"]: entry for entry in cli("history", "n", "--json").lines() if entry["kind"] == "step"}
    assert (entries["slow"]["state"], entries["slow"]["result"]) == ("executed", "slept")
    assert cli.show("n")["status"] == "queued"
    cli("worker", "app", "--exit-when-idle")
    assert cli.show("n")["result"] == "slept7"
    assert cli.words("began") == ["1"]


def test_the_end_of_the_grace_time_interrupts(cli):
    """A step that outlasts the grace time does not keep the worker, even in a thread; the run goes on elsewhere."""
    cli("run", "app:nap", "600", "--id", "n", "--detach")
    worker = cli.start("worker", "app", "--grace-s", "0.2")
    cli.began()
    worker.terminate()
    assert cli.end(worker).code == 0
    assert cli.show("n")["status"] == "queued"


@pytest.mark.parametrize(("second", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_forces(cli, second, code):
    """While the worker waits for a step, a second signal ends it at once."""
    cli("run", "app:nap", "600", "--id", "n", "--detach")
    worker = cli.start("worker", "app")
    cli.began()
    worker.terminate()
    assert worker.stderr is not None
    for line in worker.stderr:
        if "stopping" in line:
            break
    worker.send_signal(second)
    assert cli.end(worker).code == code
    assert cli.words("ended") == []


def test_a_second_signal_forces_a_blocked_loop(cli):
    """An async step that blocks the loop keeps the first signal from working, not the second."""
    cli.write(
        "blocked.py",
        "import time\nfrom pathlib import Path\nfrom perdure import agent, step\n\n"
        "@step\nasync def block() -> None:\n    Path('began').write_text('x')\n"
        "    while True:\n        time.sleep(0.01)\n\n"
        "@agent\nasync def stuck() -> None:\n    await block()\n",
    )
    run = cli.start("run", "blocked:stuck")
    cli.began()
    run.send_signal(signal.SIGINT)
    seen = time.monotonic()
    cli.until(lambda: time.monotonic() > seen + 0.1)  # two signals at once would be delivered as one
    run.send_signal(signal.SIGINT)
    assert cli.end(run).code == 130


def test_ctrl_c_on_run_says_how_to_go_on(cli):
    """Ctrl-C finishes the step, hands the run back, exits 130, and names the commands that take it up again."""
    run = cli.start("run", "app:nap", "1.5", "--id", "n")
    cli.began()
    run.send_signal(signal.SIGINT)
    ended = cli.end(run)
    assert (ended.code, ended.out) == (130, "")
    assert "perdure run app:nap --id n" in ended.err
    assert "perdure worker app" in ended.err
    assert cli.show("n")["status"] == "queued"
    assert cli("run", "app:nap", "--id", "n").json() == "slept7"
    assert cli.words("began") == ["1"]


def test_term_on_run_exits_with_0(cli):
    """SIGTERM on `run` is a polite request: the run is handed back, exit 0."""
    run = cli.start("run", "app:dream", "3600", "--id", "d")
    cli.until(lambda: '"waiting"' in cli("ps", "--json").out)
    run.terminate()
    assert cli.end(run).code == 0


def test_a_run_that_ends_within_the_grace_time_gives_its_result(cli):
    """The signal came in the last step: the result is there, so it is printed."""
    run = cli.start("run", "app:mail", "1.5", "--id", "m")
    cli.began()
    run.send_signal(signal.SIGINT)
    ended = cli.end(run)
    assert (ended.code, ended.out) == (0, '"sent"\n')


def test_a_reader_that_goes_away_is_no_error(cli):
    """A closed pipe ends a command without a word."""
    cli("run", "app:total", "1", "--id", "t")
    history = cli.start("history", "t", "--json")
    assert history.stdout is not None
    history.stdout.close()
    assert history.stderr is not None
    assert history.stderr.read() == ""
    assert history.wait() == 141


def test_a_thread_of_the_users_does_not_keep_the_process(cli):
    """A thread that never ends does not keep `run` from ending."""
    cli.write(
        "threads.py",
        "import threading\nfrom perdure import agent\n\n"
        "threading.Thread(target=threading.Event().wait).start()\n\n"
        "@agent\nasync def one() -> int:\n    return 1\n",
    )
    assert cli("run", "threads:one").json() == 1


def test_exit_when_idle_with_nothing_to_do(cli):
    """A worker on a fresh store leaves with 0 and says what it serves."""
    ended = cli("worker", "app", "--exit-when-idle")
    assert "dream, grumpy" in ended.err
    assert (cli.folder / "perdure.db").exists()


def test_closed_streams(cli):
    """A process without stdin, stdout or stderr works; no file of the store gets their numbers."""
    words = shlex.join([*cli.program, "run", "app:total", "1", "--id", "t"])
    done = subprocess.run(["sh", "-c", f"exec {words} <&- >&- 2>&-"], cwd=cli.folder, env=cli.env, check=False)
    assert done.returncode == 0
    assert cli.show("t")["result"] == 3


def test_output_that_cannot_be_written(cli):
    """A full disk behind stdout is said in one line; the run keeps its result."""
    words = shlex.join([*cli.program, "run", "app:total", "1", "--id", "t"])
    done = subprocess.run(
        ["sh", "-c", f"exec {words} >/dev/full"], cwd=cli.folder, env=cli.env, stderr=subprocess.PIPE, check=False
    )
    assert done.returncode == 74
    assert b"the output cannot be written: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert cli.show("t")["result"] == 3


def test_ctrl_c_on_a_run_that_another_worker_holds_detaches(cli):
    """It says that the run goes on and how to wait for it again; the other worker is not disturbed."""
    cli("run", "app:nap", "600", "--id", "n", "--detach")
    worker = cli.start("worker", "app")
    cli.began()
    run = cli.start("run", "app:nap", "--id", "n")
    assert run.stderr is not None
    assert "goes on after" in run.stderr.readline()
    run.send_signal(signal.SIGINT)
    ended = cli.end(run)
    assert (ended.code, ended.out) == (130, "")
    assert "run n goes on in another worker. Wait for it again with `perdure run app:nap --id n`" in ended.err
    assert "stopping" not in ended.err
    assert cli.show("n")["status"] == "running"
    assert cli.words("began") == ["1"]
    worker.kill()
