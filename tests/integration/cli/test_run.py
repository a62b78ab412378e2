"""`perdure run`: here, detached, attached."""

from __future__ import annotations

import json


def test_the_result_is_all_there_is_on_stdout(cli):
    """What steps print and the progress go to stderr; stdout holds the result as one JSON value."""
    ended = cli("run", "app:total", "3", "b=4")
    assert ended.out == "7\n"
    assert "a step prints" in ended.err
    assert "step 1 add: done" in ended.err


def test_arguments_take_the_annotated_types(cli):
    """JSON objects become the agent's dataclasses; keywords and positions may be mixed."""
    ended = cli("run", "app:order", '{"item": "tea", "count": 2}', "urgent=true", "-q")
    assert ended.json() == "2 tea!"
    assert ended.err == ""


def test_negative_numbers_are_arguments(cli):
    """A JSON number may begin with a minus, though options do too."""
    assert cli("run", "app:total", "-3", "b=-4").json() == -7


def test_an_agent_may_be_given_by_its_file(cli):
    """A path gives the same module name as the dotted name, so either attaches to the same run."""
    cli.write("pkg/__init__.py", "")
    cli.write("pkg/inner.py", "from perdure import agent\n\n@agent\nasync def one(x: int) -> int:\n    return x\n")
    assert cli("run", "pkg/inner.py:one", "1", "--id", "p").json() == 1
    assert cli("run", "pkg.inner:one", "1", "--id", "p").json() == 1
    assert cli("run", "pkg.inner", "2").json() == 2  # its only agent


def test_an_id_is_attached_to_and_never_run_again(cli):
    """A finished run gives its result again, with its arguments or none; other arguments or agents are refused."""
    cli("run", "app:nap", "0", "--id", "n")
    assert cli("run", "app:nap", "0", "--id", "n").json() == "slept7"
    assert cli("run", "app:nap", "--id", "n").json() == "slept7"
    assert cli.words("ended") == ["x"]
    assert "other arguments" in cli("run", "app:nap", "1", "--id", "n", code=4).err
    assert "belongs to agent 'nap'" in cli("run", "app:total", "1", "--id", "n", code=4).err


def test_a_failed_run_says_where_and_exits_with_1(cli):
    """The error, the step and the way on are on stderr; stdout stays empty; retry goes on from the failed step."""
    ended = cli("run", "app:grumpy", "--id", "g", code=1)
    assert ended.out == ""
    assert "in step 1 refuse: ValueError: the target said no" in ended.err
    assert "perdure retry g" in ended.err
    cli.write("mended", "")
    cli("retry", "g")
    assert cli("run", "app:grumpy", "--id", "g").json() == "well"


def test_detach_records_and_leaves(cli):
    """--detach prints the id, or with --json the run; a worker takes it up."""
    ended = cli("run", "app:total", "1", "--detach", "--id", "d", "--queue", "q", "--priority", "3", "--tag", "team=a")
    assert ended.out == "d\n"
    view = cli("run", "app:total", "5", "--detach", "--json").json()
    assert view["status"] == "queued"
    cli("worker", "app", "--exit-when-idle")
    shown = cli.show("d")
    assert (shown["status"], shown["result"], shown["queue"], shown["priority"], shown["tags"]) == (
        ("completed", 3, "q", 3, {"team": "a"})
    )
    assert cli.show(view["id"])["result"] == 7


def test_a_run_that_another_worker_holds_is_waited_for(cli):
    """`run` on an id that a live worker executes waits for that worker's result; the step happens once."""
    cli("run", "app:nap", "1.5", "--id", "n", "--detach")
    worker = cli.start("worker", "app")
    cli.began()
    assert cli("run", "app:nap", "--id", "n").json() == "slept7"
    assert cli.words("began") == ["1"]
    worker.terminate()
    assert cli.end(worker).code == 0


def test_a_cancelled_run_exits_with_7(cli):
    """Cancelled from another terminal while `run` waits."""
    run = cli.start("run", "app:dream", "3600", "--id", "d")
    cli.until(lambda: '"waiting"' in cli("ps", "--json", code=None).out)
    cli("cancel", "d")
    ended = cli.end(run)
    assert (ended.code, ended.out) == (7, "")
    assert "run d was cancelled" in ended.err


def test_exit_when_idle_leaves_a_long_sleep(cli):
    """A run that sleeps beyond the horizon is left waiting, and the way on is said."""
    ended = cli("run", "app:dream", "3600", "--id", "d", "--exit-when-idle")
    assert (ended.out, cli.show("d")["waiting_on"]) == ("", "timer")
    assert "perdure run app:dream --id d" in ended.err


def test_exit_when_idle_leaves_a_paused_run_with_6(cli):
    """Only a person can let a paused run go on."""
    cli("run", "app:dream", "3600", "--id", "d", "--exit-when-idle")
    cli("pause", "d")
    assert "perdure resume d" in cli("run", "app:dream", "--id", "d", "--exit-when-idle", code=6).err


def test_a_run_in_doubt_stops_with_6_and_says_what_to_do(cli):
    """A killed `once` step parks the run; show names the step and the command; resolve lets it go on."""
    run = cli.start("run", "app:mail", "600", "--id", "m")
    cli.began()
    run.kill()
    cli.end(run)
    ended = cli("run", "app:mail", "--id", "m", code=6)
    assert "in_doubt" in ended.err
    page = cli("show", "m").out
    assert "perdure resolve m 1 --done JSON | --retry | --fail" in page
    assert "step 1 send is in doubt" in page
    assert "STEP" not in cli("history", "m").out.splitlines()[1]
    cli("resolve", "m", "send", "--done", '"by hand"')
    assert cli("run", "app:mail", "--id", "m").json() == "by hand"
    assert cli.words("began") == ["sent"]


def test_a_run_in_doubt_that_is_resumed_keeps_its_reason(cli):
    """`resume` decides nothing: the run parks again, and still says why the outcome is unknown."""
    cli.write(
        "late.py",
        "from perdure import agent, step\n\n@step(effect='once')\nasync def send() -> None:\n"
        "    raise TimeoutError('no answer from the target')\n\n@agent\nasync def mail() -> None:\n    await send()\n",
    )
    for words in (("run", "late:mail", "--id", "m"), ("run", "late:mail", "--id", "m")):
        assert "no answer from the target" in cli(*words, code=6).err
        assert "no answer from the target" in cli.show("m")["error"]["message"]
        cli("resume", "m")


def test_a_diverged_run_stops_with_8(cli):
    """Code that asks for something else than the journal records parks the run; the old code lets it go on."""
    run = cli.start("run", "app:nap", "600", "--id", "n")
    cli.began()
    run.kill()
    cli.end(run)
    text = (cli.folder / "app.py").read_text()
    cli.write("app.py", text.replace("await add(1, 2)", "await add(1, 3)"))
    ended = cli("run", "app:nap", "--id", "n", code=8)
    assert ended.err.count("last common step") == 1
    assert cli.show("n")["reason"] == "diverged"
    cli.write("app.py", text.replace("time.sleep(seconds)", "time.sleep(0)"))
    assert cli("run", "app:nap", "--id", "n").json() == "slept7"


def test_a_timeout_exits_with_124_and_hands_the_run_back(cli):
    """--timeout stops waiting; the run is not lost."""
    ended = cli("run", "app:dream", "3600", "--id", "d", "--timeout", "0.5", code=124)
    assert "perdure worker app" in ended.err
    assert cli.show("d")["status"] == "waiting"


def test_a_big_result_arrives_whole(cli):
    """Two megabytes of JSON go through the pipe."""
    assert len(cli("run", "app:big").json()) == 2000


def test_json_gives_the_fields_of_the_face(cli):
    """`ps`, `show` and `history` have the fields that are promised, as NDJSON or one object."""
    cli("run", "app:total", "1", "--id", "t")
    promised = ["id", "agent", "status", "reason", "waiting_on", "progress", "attempt", "worker"]
    promised += ["created_at", "updated_at", "result", "error"]
    assert set(promised) <= set(cli.show("t"))
    assert list(cli.show("t")["progress"])[:4] == ["done", "total", "percent", "eta_s"]
    assert cli("ps", "--json").lines() == [cli.show("t")]
    entries = cli("history", "t", "--json").lines()
    promised = ["seq", "kind", "name", "position", "key", "effect", "state", "attempt", "result", "error", "at"]
    assert set(promised) <= set(entries[0])
    step = next(entry for entry in entries if entry["kind"] == "step")
    assert (step["name"], step["position"], step["state"], step["result"]) == ("add", 1, "executed", 3)
    assert json.loads(cli("--json", "show", "t").out) == cli.show("t")  # options may stand before the command
