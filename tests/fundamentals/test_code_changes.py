"""Code that changes under a run: what no longer fits its journal parks it, with the place and a short diff; the
right code lets it go on."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fundamentals.conftest import kinds, until

from perdure import RunParked
from perdure.api import registry

HEAD = """
import asyncio
import json
from perdure import agent, run, step

did = []

@step
async def fetch(what): did.append(what); return what

@step
async def write(what): did.append(what); return what

@step(name="send")
async def send(what): did.append(what); return what

@step
async def extra(what): did.append(what); return what

@agent
async def changing_flow():
"""
FIRST = """
    await fetch("pages")
    await write("draft")
    await asyncio.sleep(0.4)
    return await send("draft")
"""


@pytest.fixture
def version(tmp_path: Path) -> Any:
    """Loads a version of the module as if the program had been started with it."""
    count = iter(range(100))

    def version(body: str) -> Any:
        path = tmp_path / f"version_{next(count)}.py"
        path.write_text(HEAD + body, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("changing_agents", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["changing_agents"] = module
        spec.loader.exec_module(module)
        module.path = str(path)
        module.lines = (HEAD + body).splitlines()
        return module

    yield version
    sys.modules.pop("changing_agents", None)


def began(durably: Any, module: Any, status: str = "waiting") -> None:
    """A run of the first version, left in its sleep."""

    async def main(app: Any) -> None:
        handle = await app.start(module.changing_flow, id="r")
        await until(handle, status)

    durably(main)


CHANGES = {
    "two steps change places": (
        """
    await write("draft")
    await fetch("pages")
    await asyncio.sleep(0.4)
    return await send("draft")
""",
        {"recorded": "fetch", "asked": "write", "line": 'await write("draft")', "last_common": None},
    ),
    "a step is renamed": (
        """
    await fetch("pages")
    await extra("draft")
    await asyncio.sleep(0.4)
    return await send("draft")
""",
        {"recorded": "write", "asked": "extra", "line": 'await extra("draft")', "last_common": "fetch"},
    ),
    "an argument is another": (
        """
    await fetch("pages")
    await write("better draft")
    await asyncio.sleep(0.4)
    return await send("draft")
""",
        {"recorded": "write", "asked": "write", "line": 'await write("better draft")', "last_common": "fetch"},
    ),
    "a step is added before the sleep it waits in": (
        """
    await fetch("pages")
    await write("draft")
    await extra("check")
    await asyncio.sleep(0.4)
    return await send("draft")
""",
        {"recorded": None, "asked": "extra", "line": 'await extra("check")', "last_common": "write"},
    ),
    "a step is added between two": (
        """
    await fetch("pages")
    await extra("check")
    await write("draft")
    await asyncio.sleep(0.4)
    return await send("draft")
""",
        {"recorded": "write", "asked": "extra", "line": 'await extra("check")', "last_common": "fetch"},
    ),
    "a step is removed": (
        """
    await fetch("pages")
    await asyncio.sleep(0.4)
    return await send("draft")
""",
        {"recorded": "write", "asked": None, "line": "await asyncio.sleep(0.4)", "last_common": "fetch"},
    ),
    "the sleep is removed": (
        """
    await fetch("pages")
    await write("draft")
    return await send("draft")
""",
        {"recorded": None, "asked": "send", "line": 'return await send("draft")', "last_common": "write"},
    ),
    "the sleep is shorter": (
        """
    await fetch("pages")
    await write("draft")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return "early"
""",
        {"recorded": None, "asked": None, "line": None, "last_common": "write"},
    ),
    "another timer is made": (
        """
    await fetch("pages")
    await write("draft")
    await asyncio.wait_for(asyncio.sleep(0.4), 60)
    return await send("draft")
""",
        {
            "recorded": None,
            "asked": None,
            "line": "await asyncio.wait_for(asyncio.sleep(0.4), 60)",
            "last_common": "write",
        },
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_code_that_does_not_fit_parks_the_run_and_the_right_code_goes_on(
    durably: Any, version: Any, change: str
) -> None:
    """Position, name and arguments are compared. Nothing is executed; what was recorded, what the code asks, its
    line and the last common step are told."""
    body, expected = CHANGES[change]
    began(durably, version(FIRST))
    wrong = version(body)

    async def diverges(app: Any) -> None:
        handle = app.get("r")
        view = await until(handle, "parked", reason="diverged")
        data = view.error["data"]
        assert [data["recorded"]["name"], data["asked"]["name"]] == [expected["recorded"], expected["asked"]]
        assert data["last_common"] == (
            expected["last_common"] and {"position": data["last_common"]["position"], "name": expected["last_common"]}
        )
        assert data["file"] == wrong.path
        if expected["line"]:
            assert wrong.lines[data["line"] - 1].strip() == expected["line"]
        assert len(data["diff"]) == 2
        assert f"{wrong.path}:{data['line']}" in view.error["message"]
        json.dumps(data)
        with pytest.raises(RunParked, match="diverged"):
            await handle.result()
        assert wrong.did == []

    durably(diverges)
    right = version(FIRST)

    async def goes_on(app: Any) -> None:
        await until(app.get("r"), "completed")
        assert await app.get("r").result() == "draft"
        assert right.did == ["draft"]

    durably(goes_on)


def test_a_step_added_after_the_place_where_a_run_waits_is_simply_done(durably: Any, version: Any) -> None:
    """Code that the run has not come to yet may change freely."""
    began(durably, version(FIRST))
    longer = version(FIRST.replace("return await", 'await extra("new")\n    return await'))

    async def main(app: Any) -> None:
        assert await app.get("r").result() == "draft"
        assert longer.did == ["new", "draft"]

    durably(main)


def test_the_same_wrong_code_is_not_tried_again_until_somebody_says_so(durably: Any, version: Any) -> None:
    """Started again with the code that did not fit, the run stays parked; `resume` makes it look once more."""
    began(durably, version(FIRST))
    wrong = version(CHANGES["a step is renamed"][0])

    async def parks(app: Any) -> None:
        await until(app.get("r"), "parked", reason="diverged")

    async def stays(app: Any) -> None:
        handle = app.get("r")
        assert await handle.status() == "parked"
        await handle.resume()
        await until(handle, "parked", reason="diverged")
        assert wrong.did == []

    durably(parks)
    durably(stays)


def test_a_request_for_a_run_that_does_not_fit_waits_for_the_right_code(durably: Any, version: Any) -> None:
    """It is looked at once, not again and again; the request is kept, and honoured when the right code comes."""
    began(durably, version(FIRST))
    version(CHANGES["a step is renamed"][0])

    async def asks(app: Any) -> None:
        handle = app.get("r")
        parked = await until(handle, "parked", reason="diverged")
        epoch = (await app.store_run("r")).epoch
        await handle.cancel()
        while (row := await app.store_run("r")).epoch == epoch or row.worker is not None:
            await asyncio.sleep(0.002)
        assert (row.epoch, row.status, row.reason, row.ready_at) == (epoch + 1, "parked", parked.reason, None)

    async def honours(app: Any) -> None:
        await until(app.get("r"), "cancelled")
        assert right.did == []

    durably(asks)
    right = version(FIRST)
    durably(honours)


PATCHED = """
    await fetch("pages")
    if run.patched("check drafts"):
        await extra("check")
    await write("draft")
    await asyncio.sleep(0.4)
    return await send("draft")
"""
PATCHED_LATER = """
    await fetch("pages")
    await write("draft")
    await asyncio.sleep(0.4)
    if run.patched("check drafts"):
        await extra("check")
    return await send("draft")
"""
PATCH_DROPPED = """
    await fetch("pages")
    await extra("check")
    await write("draft")
    await asyncio.sleep(0.4)
    return await send("draft")
"""


def test_patched_keeps_old_runs_on_the_old_way_and_sends_new_ones_the_new(durably: Any, version: Any) -> None:
    """`if run.patched(name)`: False where the journal has gone past without it, True, and recorded, in runs that
    come there first."""
    began(durably, version(FIRST))
    both = version(PATCHED)

    async def main(app: Any) -> None:
        assert await app.get("r").result() == "draft"
        assert both.did == ["draft"]
        new = await app.start(both.changing_flow, id="new")
        assert await new.result() == "draft"
        assert both.did == ["draft", "pages", "check", "draft", "draft"]
        assert "patch" in await kinds(new)

    durably(main)


def test_a_patch_that_a_run_has_not_come_to_yet_is_taken(durably: Any, version: Any) -> None:
    """The run waits before the patched place: it takes the new way there."""
    began(durably, version(FIRST))
    both = version(PATCHED_LATER)

    async def main(app: Any) -> None:
        assert await app.get("r").result() == "draft"
        assert both.did == ["check", "draft"]

    durably(main)


def test_once_no_old_run_is_left_the_patch_can_be_dropped(durably: Any, version: Any) -> None:
    """A run that went the new way goes on with code that no longer asks."""
    began(durably, version(PATCHED))
    new_only = version(PATCH_DROPPED)

    async def main(app: Any) -> None:
        assert await app.get("r").result() == "draft"
        assert new_only.did == ["draft"]

    durably(main)


TWO_PATCHES = """
    if run.patched("first"):
        await asyncio.gather(fetch("a"), later())
    else:
        await fetch("pages")
    await asyncio.sleep(0.4)
    return await send("new" if run.patched("second") else "old")

async def later():
    run.patched("second")
    await write("b")
"""


def test_a_patch_can_be_dropped_while_another_one_beside_it_stays(durably: Any, version: Any) -> None:
    """What is recorded of a patch that the code no longer asks for is passed over: the other one is answered as
    before."""
    began(durably, version(TWO_PATCHES))
    one_left = version(TWO_PATCHES.replace('run.patched("first")', "True"))

    async def main(app: Any) -> None:
        assert await app.get("r").result() == "new"
        assert one_left.did == ["new"]

    durably(main)


SLEPT = """
    await fetch("pages")
    await asyncio.sleep(0.01)
    await asyncio.sleep(0.4)
    return await send("draft")
"""
SLEPT_OTHERWISE = {
    "it sleeps longer": ("await asyncio.sleep(0.01)", "await asyncio.sleep(70)", "await asyncio.sleep(70)"),
    "another timer comes before it": (
        "await asyncio.sleep(0.01)",
        "await asyncio.wait_for(asyncio.sleep(0.01), 30)",
        "await asyncio.wait_for(asyncio.sleep(0.01), 30)",
    ),
}


@pytest.mark.parametrize("change", SLEPT_OTHERWISE)
def test_a_timer_that_has_fired_is_not_taken_for_one_that_is_due_later(durably: Any, version: Any, change: str) -> None:
    """A sleep that is over cannot have been longer, and its end is never the end of a timeout that the new code has
    put around it: the run parks, and the right code goes on."""
    old, new, line = SLEPT_OTHERWISE[change]
    began(durably, version(SLEPT))
    wrong = version(SLEPT.replace(old, new))

    async def diverges(app: Any) -> None:
        view = await until(app.get("r"), "parked", reason="diverged")
        data = view.error["data"]
        assert wrong.lines[data["line"] - 1].strip() == line
        assert data["recorded"]["what"] == "timer 1 fired"
        assert data["asked"]["what"].startswith("timer 1, due ")
        assert data["last_common"] == {"position": 1, "name": "fetch"}

    durably(diverges)
    right = version(SLEPT)

    async def goes_on(app: Any) -> None:
        await until(app.get("r"), "completed")
        assert right.did == ["draft"]

    durably(goes_on)


def test_a_sleep_that_is_over_may_become_shorter_and_one_that_lasts_may_become_anything(
    durably: Any, version: Any
) -> None:
    """What is recorded stands; a sleep the run is still in takes its new length."""
    began(durably, version(SLEPT))
    shorter = version(SLEPT.replace("0.01", "0.001").replace("0.4", "0.5"))

    async def main(app: Any) -> None:
        assert await app.get("r").result() == "draft"
        assert shorter.did == ["draft"]

    durably(main)


HASHES = """
    for name in {"alpha", "beta", "gamma", "delta", "epsilon", "zeta"}:
        await fetch(name)
    await asyncio.sleep(0.4)
    return "done"
"""


def test_the_order_of_a_set_is_caught_when_it_differs(durably: Any, version: Any) -> None:
    """Sets of text iterate in another order in another process. The arguments' digests differ, so the run parks
    instead of mixing results up."""
    began(durably, version(HASHES.replace("{", "[").replace("}", "]")))
    other = version(HASHES.replace("{", "reversed([").replace("}", "])"))

    async def main(app: Any) -> None:
        view = await until(app.get("r"), "parked", reason="diverged")
        assert "'alpha'" in view.error["message"]
        assert "'zeta'" in view.error["message"]
        assert other.did == []

    durably(main)


FAILS_AFTER = """
    await fetch("pages")
    await write("draft")
    await asyncio.sleep(0.4)
    raise ValueError("a mistake after the sleep")
"""


def test_a_mistake_in_the_code_is_mended_and_the_run_retried(durably: Any, version: Any) -> None:
    """The run failed by the agent's own code; with the mended code `retry` goes on from there, and repeats nothing."""
    broken = version(FAILS_AFTER)

    async def fails(app: Any) -> None:
        handle = await app.start(broken.changing_flow, id="r")
        await until(handle, "failed")

    durably(fails)
    mended = version(FIRST)

    async def goes_on(app: Any) -> None:
        await app.get("r").retry()
        await until(app.get("r"), "completed")
        assert mended.did == ["draft"]

    durably(goes_on)


def test_a_run_whose_agent_is_gone_parks_under_those_who_wait_for_it(
    durably: Any, version: Any, monkeypatch: Any
) -> None:
    """`result()` in the process that parks it as `no_code` says so at once; the code's return lets it go on."""
    module = version('    return await fetch("x")\n\n@agent\nasync def staying_flow(): return 1\n')

    async def waits(app: Any) -> str:
        handle = await app.start(module.changing_flow, id="gone", delay=0.05)
        with monkeypatch.context() as patch:
            patch.delitem(registry.agents, "changing_flow")
            with pytest.raises(RunParked, match="lacks agent 'changing_flow'") as caught:
                await handle.result()
        return caught.value.reason

    assert durably(waits) == "no_code"
    assert durably(lambda app: app.get("gone").result()) == "x"
