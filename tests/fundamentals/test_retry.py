"""Failures that outlive the program: attempts are records, and an ended run can go on from the step that failed
(design 1.6.13)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.fundamentals.conftest import kinds, steps, until

from perdure import RunFailed, StepError, agent, run, step
from perdure.kernel import superseded

did: list[Any] = []
broken: set[str] = set()
gate = threading.Event()


class Declared(Exception):
    pass


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    did.clear()
    broken.clear()


@step(raises=Declared)
async def work(what: str) -> str:
    did.append((what, run.key))
    if what in broken:
        raise Declared(what) if what == "declared" else RuntimeError(f"{what} is broken")
    return what


@step(retries=4, backoff=0.6)
async def flaky() -> int:
    did.append((run.attempt, run.key))
    if run.attempt < 2:
        raise ConnectionRefusedError("not yet")
    return run.attempt


@agent
async def retry_waits() -> int:
    return await flaky()


def test_the_wait_for_the_next_attempt_is_durable(durably: Any) -> None:
    """1.6.13: the failed attempt and the time of the next one are a record before the wait begins. Another process
    makes attempt 2."""

    async def first(app: Any) -> None:
        handle = await app.start(retry_waits, id="r")
        view = await until(handle, "waiting", waiting_on="step")
        assert view.ready_at is not None
        attempts = (await handle.history())[1].attempts
        assert [(attempt["attempt"], attempt["error"]["type"]) for attempt in attempts] == [
            (1, "ConnectionRefusedError")
        ]

    async def second(app: Any) -> None:
        assert await app.get("r").result() == 2
        assert did == [(1, "r:1"), (2, "r:1")]

    durably(first)
    durably(second)


@agent
async def retry_chain() -> list[str]:
    return [await work("first"), await work("second"), await work("third")]


def test_retry_goes_on_from_the_failed_step(durably: Any) -> None:
    """What was done stays done; the failed step is tried again under its key; the failure stays visible in the
    history."""

    async def main(app: Any) -> None:
        broken.add("second")
        handle = await app.start(retry_chain, id="r")
        with pytest.raises(RunFailed):
            await handle.result()
        broken.clear()
        await handle.retry()
        await until(handle, "completed")
        assert await handle.result() == ["first", "second", "third"]
        assert did == [("first", "r:1"), ("second", "r:2"), ("second", "r:2"), ("third", "r:3")]
        assert "retry" in await kinds(handle)

    durably(main)


@agent
async def retry_with_cleanup(kind: str) -> str:
    try:
        return await work(kind)
    finally:
        await work("cleanup")


@pytest.mark.parametrize("kind", ["undeclared", "declared"])
def test_retry_replaces_what_followed_the_failure_and_lists_its_effects(durably: Any, kind: str) -> None:
    """The cleanup that followed the failure has happened: it is listed as kept, marked superseded, and its key is
    used by nothing else."""

    async def main(app: Any) -> None:
        broken.add(kind)
        handle = await app.start(retry_with_cleanup, kind, id="r")
        with pytest.raises(RunFailed):
            await handle.result()
        broken.clear()
        await handle.retry()
        await until(handle, "completed")
        assert did == [(kind, "r:1"), ("cleanup", "r:2"), (kind, "r:1"), ("cleanup", "r:3")]
        history = await handle.history()
        retried = next(entry for entry in history if entry.kind == "retry")
        assert retried.detail["effects_kept"] == [2]
        assert [(entry.position, entry.superseded) for entry in history if entry.kind == "step"] == [
            (1, False),
            (2, True),
            (3, False),
        ]

    durably(main)


def test_were_numbers_given_out_again_two_effects_would_share_a_key(
    durably: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.6.13, J4: a retry that did not number above what it replaces would lend an executed effect's key to a new
    one."""
    import msgspec

    real = superseded.plan_retry

    def forgetful(*args: Any, **options: Any) -> Any:
        first, *rest = real(*args, **options)
        return [msgspec.structs.replace(first, positions=0), *rest]

    from perdure.worker import execution

    monkeypatch.setattr(execution, "plan_retry", forgetful)

    async def main(app: Any) -> None:
        broken.add("undeclared")
        handle = await app.start(retry_with_cleanup, "undeclared", id="r")
        with pytest.raises(RunFailed):
            await handle.result()
        broken.clear()
        await handle.retry()
        await until(handle, "completed")
        assert did.count(("cleanup", "r:2")) == 2

    durably(main)


gate = threading.Event()


@step
def slow() -> str:
    gate.wait(30)
    did.append(("slow", run.key))
    return "slow"


@agent
async def retry_beside_an_effect() -> list[str]:
    effect = asyncio.create_task(slow())
    await asyncio.sleep(0.01)
    if "the agent" in broken:
        gate.set()
        raise ValueError("a mistake in the agent, while an effect is running")
    return [await work("the rest"), await effect]


def test_a_mended_agent_asks_for_new_steps_before_an_effect_of_the_failed_one_comes_in(durably: Any) -> None:
    """The effect that ended after the mistake is not repeated. It enters after what the mended code does first: that
    is no divergence."""

    async def main(app: Any) -> None:
        gate.clear()
        broken.add("the agent")
        handle = await app.start(retry_beside_an_effect, id="r")
        with pytest.raises(RunFailed, match="a mistake in the agent"):
            await handle.result()
        broken.clear()
        await handle.retry()
        assert await handle.result() == ["the rest", "slow"]
        assert did == [("slow", "r:1"), ("the rest", "r:2")]

    durably(main)


@agent
async def retry_group() -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(what)) for what in ("left", "middle", "right")]
    return [task.result() for task in tasks]


def test_retry_finds_the_failed_step_in_a_group(durably: Any) -> None:
    """The failure came as an `ExceptionGroup`, after the other tasks were settled: the step that failed is tried
    again all the same."""

    async def main(app: Any) -> None:
        broken.add("middle")
        handle = await app.start(retry_group, id="r")
        with pytest.raises(RunFailed):
            await handle.result()
        broken.clear()
        await handle.retry()
        await until(handle, "completed")
        assert await handle.result() == ["left", "middle", "right"]
        keys = {what: {key for name, key in did if name == what} for what in ("left", "middle", "right")}
        assert keys == {"left": {"r:1"}, "middle": {"r:2"}, "right": {"r:3"}}

    durably(main)


@agent
async def retry_wrapped() -> str:
    try:
        return await work("wrapped")
    except StepError as exc:
        await work("report")
        raise ValueError("translated") from exc


def test_retry_follows_the_cause_of_an_error(durably: Any) -> None:
    """`raise … from exc`: the run goes on from the step whose error is the cause."""

    async def main(app: Any) -> None:
        broken.add("wrapped")
        handle = await app.start(retry_wrapped, id="r")
        with pytest.raises(RunFailed, match="translated"):
            await handle.result()
        broken.clear()
        await handle.retry()
        await until(handle, "completed")
        assert await handle.result() == "wrapped"

    durably(main)


@agent
async def retry_twice() -> list[str]:
    return [await work("a"), await work("b")]


def test_a_run_can_be_retried_more_than_once(durably: Any) -> None:
    """Each retry goes on from the failure of its time; the history holds all of them."""

    async def main(app: Any) -> None:
        handle = await app.start(retry_twice, id="r") if broken.add("a") is None else None
        assert handle is not None
        for fixed, still in (("a", "b"), ("b", None)):
            await until(handle, "failed")
            broken.discard(fixed)
            if still:
                broken.add(still)
            await handle.retry()
            await until(handle, "failed" if still else "completed")
        assert await handle.result() == ["a", "b"]
        assert (await kinds(handle)).count("retry") == 2
        assert [what for what, _ in did] == ["a", "a", "b", "b"]

    durably(main)


@agent
async def retry_cancelled() -> str:
    await work("before")
    await asyncio.sleep(0.3)
    return await work("after")


def test_a_cancelled_run_can_be_taken_up_again(durably: Any) -> None:
    """`retry` of a cancelled run: as if it had not been cancelled; the sleep goes on."""

    async def main(app: Any) -> None:
        handle = await app.start(retry_cancelled)
        await until(handle, "waiting")
        await handle.cancel()
        await until(handle, "cancelled")
        await handle.retry()
        await until(handle, "completed")
        assert await handle.result() == "after"
        assert [what for what, _ in did] == ["before", "after"]
        assert [state for _, _, state in await steps(handle)] == ["executed", "executed"]

    durably(main)


@agent
async def retry_own_mistake() -> str:
    await work("before")
    if "mistake" in broken:
        raise ValueError("a mistake in the agent's own code")
    return "fine"


def test_retry_after_the_agents_own_mistake_runs_its_code_again(durably: Any) -> None:
    """No step failed: the agent's code is run again from the last thing that happened to it."""

    async def main(app: Any) -> None:
        broken.add("mistake")
        handle = await app.start(retry_own_mistake)
        with pytest.raises(RunFailed, match="own code"):
            await handle.result()
        broken.clear()
        await handle.retry()
        await until(handle, "completed")
        assert [what for what, _ in did] == ["before"]

    durably(main)


@agent
async def retry_twice_ended() -> list[str]:
    done = [await work("a")]
    await asyncio.sleep(0.3)
    done.append(await work("b"))
    await asyncio.sleep(0.3)
    return [*done, await work("c")]


def test_a_cancel_that_a_retry_took_back_does_not_come_back(durably: Any) -> None:
    """Cancelled, taken up again, and later terminated: the second retry goes on from there, not from the cancel."""

    async def main(app: Any) -> None:
        handle = await app.start(retry_twice_ended)
        await until(handle, "waiting")
        await handle.cancel()
        await until(handle, "cancelled")
        await handle.retry()
        while ("b", f"{handle.id}:2") not in did:
            await asyncio.sleep(0.002)
        await until(handle, "waiting")
        await handle.terminate()
        await until(handle, "cancelled")
        await handle.retry()
        await until(handle, "completed")
        assert [what for what, _ in did] == ["a", "b", "c"]

    durably(main)


def test_a_retry_that_was_terminated_before_it_began_can_be_asked_for_again(durably: Any) -> None:
    """The run then goes on from the step that had failed in the first place."""

    async def fails(app: Any) -> None:
        broken.add("second")
        await until(await app.start(retry_chain, id="r"), "failed")

    async def asks(app: Any) -> None:
        for request in ("retry", "terminate", "retry"):
            await getattr(app.get("r"), request)()

    async def goes_on(app: Any) -> None:
        broken.clear()
        await until(app.get("r"), "completed")
        assert [what for what, _ in did] == ["first", "second", "second", "third"]

    durably(fails)
    durably(asks, worker=False)
    durably(goes_on)


def test_a_run_that_was_terminated_before_it_began_can_be_retried(durably: Any) -> None:
    """It has an end on record and no beginning: it begins."""

    async def asks(app: Any) -> None:
        handle = await app.start(retry_chain, id="r")
        await handle.terminate()
        await handle.retry()

    async def begins(app: Any) -> None:
        await until(app.get("r"), "completed")
        assert [what for what, _ in did] == ["first", "second", "third"]

    durably(asks, worker=False)
    durably(begins)


@step
def work_slowly(what: str) -> str:
    did.append((what, run.key))
    gate.wait(20)
    return what


async def retry_branch(what: str) -> list[str]:
    return [await work_slowly(what), await work(f"more {what}")]


@agent
async def retry_branches() -> list[Any]:
    return await asyncio.gather(work("fails"), retry_branch("one"), retry_branch("two"))


def test_retry_keeps_the_outcomes_of_several_branches(durably: Any) -> None:
    """Two effects were under way when a third failed: after the retry each branch goes on from its own outcome."""

    async def main(app: Any) -> None:
        broken.add("fails")
        gate.clear()
        handle = await app.start(retry_branches)
        while len(did) < 3 or ("work", 1, "executed") not in await steps(handle):
            await asyncio.sleep(0.002)
        gate.set()
        await until(handle, "failed")
        broken.clear()
        await handle.retry()
        assert await until(handle, "completed")
        assert await handle.result() == ["fails", ["one", "more one"], ["two", "more two"]]
        assert sorted(what for what, _ in did) == ["fails", "fails", "more one", "more two", "one", "two"]

    durably(main)


@step(effect="once")
async def send_unstorably(what: str) -> Any:
    did.append(what)
    return object()


@agent
async def retry_of_what_happened() -> Any:
    return await send_unstorably("a letter")


def test_retry_does_not_repeat_what_happened_and_could_not_be_stored(durably: Any) -> None:
    """The step failed only by its result: a `once` step is in doubt then, and a person, who can look, decides."""

    async def main(app: Any) -> None:
        handle = await app.start(retry_of_what_happened)
        with pytest.raises(RunFailed, match="NotStorable"):
            await handle.result()
        await handle.retry()
        await until(handle, "parked", reason="in_doubt")
        await handle.resolve("send_unstorably", done="sent")
        assert await handle.result() == "sent"
        assert did == ["a letter"]

    durably(main)
