"""Requests that come at an awkward moment: while a run is leaving memory, beside another request, or for a step that is
not where the person thinks it is. None is lost, and none does more than it says."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.fundamentals.conftest import kinds, until

from perdure import StepError, agent, run, step
from perdure.base import codec
from perdure.base.status import ControlKind

did: list[Any] = []
gate = threading.Event()
bell: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    did.clear()
    gate.clear()
    bell.clear()


@step
async def work(what: str) -> str:
    did.append(what)
    if what in bell:
        await bell[what].wait()
    return what


async def done(*what: str) -> None:
    while not all(item in did for item in what):
        await asyncio.sleep(0.002)


class HeldWrites:
    """The store's `append`, held back until it is let through, one by one or for good."""

    def __init__(self, store: Any) -> None:
        self._append = store.append
        self._turns = asyncio.Semaphore(0)
        self._held = True
        self.waiting = 0
        store.append = self

    async def __call__(self, worker: int, writes: Any) -> Any:
        if self._held:
            self.waiting += 1
            await self._turns.acquire()
            self.waiting -= 1
        return await self._append(worker, writes)

    async def come(self) -> None:
        """Until one waits here."""
        while not self.waiting:
            await asyncio.sleep(0.002)

    def let_one_through(self) -> None:
        self._turns.release()

    def let_go(self) -> None:
        self._held = False
        self._turns.release()


@agent
async def awkward_sleeper() -> None:
    await work("first")
    try:
        await asyncio.sleep(86_400)
    finally:
        await work("cleanup")


@agent
async def awkward_other() -> str:
    return await work("other")


def test_a_cancel_that_meets_a_run_about_to_leave_wakes_it(durably: Any) -> None:
    """The run has decided to leave memory for a day, and waits for its turn to write that: the request is not consumed by
    that write."""

    async def main(app: Any) -> None:
        bell["first"] = asyncio.Event()
        handle = await app.start(awkward_sleeper)
        await done("first")
        writes = HeldWrites(app.worker.store)
        other = await app.start(awkward_other)
        await writes.come()
        bell["first"].set()
        (sleeper,) = (run for run in app.worker.running.values() if run.id == handle.id)
        while sleeper.outbox.change is None:
            await asyncio.sleep(0.002)
        await handle.cancel()
        writes.let_go()
        await until(handle, "cancelled")
        assert did == ["first", "other", "cleanup"]
        assert await other.result() == "other"

    durably(main)


@agent
async def awkward_nap() -> None:
    await work("first")
    await asyncio.sleep(86_400)


def test_a_cancel_that_meets_the_write_of_a_rest_ends_the_run(durably: Any) -> None:
    """The write that lets go of the run is refused over the cancel; what follows it says how the run ended, not that it
    rests."""

    async def main(app: Any) -> None:
        bell["first"] = asyncio.Event()
        handle = await app.start(awkward_nap)
        await done("first")
        writes = HeldWrites(app.worker.store)
        bell["first"].set()
        await writes.come()
        await handle.cancel()
        writes.let_go()
        await until(handle, "cancelled")
        assert (await kinds(handle)).count("end") == 1

    durably(main)


# Steps that are stopped, asked about, or in doubt


@step(effect="read")
async def look(what: str) -> None:
    did.append(what)
    await asyncio.Event().wait()


@agent
async def awkward_readers() -> list[str]:
    try:
        async with asyncio.TaskGroup() as group:
            for what in ("one", "two"):
                group.create_task(look(what))
    except* StepError as failed:
        did.append([error.type for error in failed.exceptions])  # type: ignore[attr-defined]  # StepErrors
    return await work("after")


def test_interrupting_one_step_may_end_another(durably: Any) -> None:
    """The group lets go of its second read when its first was interrupted: that one is over, not interrupted as well."""

    async def main(app: Any) -> None:
        handle = await app.start(awkward_readers)
        await done("one", "two")
        await handle.interrupt()
        assert await handle.result() == "after"
        assert ["Interrupted"] in did

    durably(main)


async def was_sent(what: str) -> str | None:
    if f"probe of {what}" in bell:
        did.append(f"probe of {what}")
        bell[f"probe of {what}"].set()
        if did.count(f"probe of {what}") == 1:
            raise ConnectionRefusedError("the target does not answer yet")
        return "sent"
    return None


@step(effect="once", probe=was_sent, backoff=0.3)
async def send(what: str) -> str:
    did.append(what)
    if what == "lost":
        raise TimeoutError
    await asyncio.Event().wait()
    return what


@agent
async def awkward_send() -> str:
    try:
        return await send("hello")
    except StepError as failed:
        return failed.type


def test_an_interrupted_step_that_did_not_happen_is_not_done_again(durably: Any) -> None:
    """Its probe says no: the agent gets the error, and the step is not started anew."""

    async def main(app: Any) -> None:
        handle = await app.start(awkward_send)
        await done("hello")
        await handle.interrupt()
        assert await handle.result() == "Interrupted"
        assert did == ["hello"]

    durably(main)


@step
def work_slowly(what: str) -> str:
    did.append(what)
    gate.wait(20)
    return what


@agent
async def awkward_pair(first: str) -> list[str]:
    return await asyncio.gather(send(first), work_slowly("slow"))


def test_a_probe_that_falls_due_while_the_run_is_paused_is_asked_later(durably: Any) -> None:
    """The run stands, but still holds a step in a thread; resumed, it asks the probe again instead of waiting for nothing."""

    async def main(app: Any) -> None:
        probed = bell["probe of lost"] = asyncio.Event()
        handle = await app.start(awkward_pair, "lost")
        await done("slow")
        await probed.wait()
        await handle.pause()
        (held,) = app.worker.running.values()
        while held.effects._probes_due:
            await asyncio.sleep(0.002)
        await handle.resume()
        gate.set()
        assert await handle.result() == ["sent", "slow"]
        assert did.count("lost") == 1

    durably(main)


@step(effect="once")
async def post(what: str) -> str:
    did.append(what)
    if did.count(what) == 1:
        raise TimeoutError
    if what in bell:
        await bell[what].wait()
    return what


@agent
async def awkward_post() -> str:
    return await post("letter")


async def cancelled_in_doubt(app: Any) -> Any:
    """Its step was in doubt, the run was cancelled, and then somebody said `resolve --retry`."""
    handle = await app.start(awkward_post)
    await until(handle, "parked")
    await handle.cancel()
    while "cancel" not in await kinds(handle):
        await asyncio.sleep(0.002)
    await until(handle, "parked", reason="in_doubt")
    await handle.resolve("post", retry=True)
    await until(handle, "cancelled")
    return handle


def test_a_step_whose_run_was_cancelled_is_not_done_again_by_resolving_it(durably: Any) -> None:
    """`resolve --retry` says that it did not happen; nobody waits for it any more, so the run ends."""

    async def main(app: Any) -> None:
        await cancelled_in_doubt(app)
        assert did == ["letter"]

    durably(main)


@agent
async def awkward_posts() -> list[str]:
    return [*await asyncio.gather(post("letter"), work_slowly("slow")), await work("after")]


def test_a_pause_is_not_forgotten_over_a_later_request(durably: Any) -> None:
    """Paused while a step in a thread runs, then a step in doubt is resolved, then the process ends: the next one finds
    the pause."""

    async def first(app: Any) -> None:
        handle = await app.start(awkward_posts, id="p")
        await done("slow")
        while not any("in doubt" in str(entry.detail) for entry in await handle.history()):
            await asyncio.sleep(0.002)
        await handle.pause()
        await handle.resolve("post", done="by hand")
        while "resolve" not in await kinds(handle):
            await asyncio.sleep(0.002)

    async def second(app: Any) -> None:
        handle = app.get("p")
        await until(handle, "paused")
        gate.set()
        assert sorted(did) == ["letter", "slow"]
        await handle.resume()
        assert await handle.result() == ["by hand", "slow", "after"]

    durably(first, grace_s=0)
    durably(second)


@step(effect="once", retries=1, backoff=0)
async def try_twice() -> int:
    did.append(run.attempt)
    if len(did) == 1:
        raise ConnectionRefusedError
    return run.attempt


@agent
async def awkward_retries() -> int:
    return await try_twice()


def test_a_start_that_was_held_back_is_not_an_attempt(durably: Any) -> None:
    """A pause comes between the decision and the start: the step did not start, and keeps its number and its retries."""

    async def first(app: Any) -> None:
        writes = HeldWrites(app.worker.store)
        handle = await app.start(awkward_retries, id="h")
        (held,) = app.worker.running.values()
        await writes.come()
        writes.let_one_through()
        while not held.effects.marked:
            await asyncio.sleep(0)
        await handle.pause()
        writes.let_go()
        await until(handle, "paused")
        assert did == []

    async def second(app: Any) -> None:
        await app.get("h").resume()
        assert await app.get("h").result() == 2
        assert did == [1, 2]

    durably(first)
    durably(second)


def test_a_second_word_about_a_step_does_not_start_it_twice(durably: Any) -> None:
    """Two people say `--retry`, and the second word arrives when the start is already being written."""

    async def main(app: Any) -> None:
        handle = await app.start(awkward_posts)
        await done("slow")
        while not any("in doubt" in str(entry.detail) for entry in await handle.history()):
            await asyncio.sleep(0.002)
        (held,) = app.worker.running.values()
        writes = HeldWrites(app.worker.store)
        await handle.resolve("post", retry=True)
        await writes.come()
        writes.let_one_through()
        while not held.effects.marked:
            await asyncio.sleep(0)
        await writes.come()
        word = codec.encode({"position": 1, "verdict": "retry"})
        await app.worker.store.control(handle.id, ControlKind.RESOLVE, body=word, by="the other")
        bell["letter"] = asyncio.Event()
        writes.let_go()
        while did.count("letter") < 2:
            await asyncio.sleep(0.002)
        assert await (await app.start(awkward_other)).result() == "other"  # by now a second start would be durable, too
        bell["letter"].set()
        gate.set()
        assert await handle.result() == ["letter", "slow", "after"]
        assert did.count("letter") == 2

    durably(main)


def test_a_step_that_a_retry_brings_back_in_doubt_can_be_resolved(durably: Any) -> None:
    """What was said about it after the cancel does not count any more, so a person is asked anew, and may answer."""

    async def main(app: Any) -> None:
        handle = await cancelled_in_doubt(app)
        await handle.retry()
        await until(handle, "parked", reason="in_doubt")
        await handle.resolve("post", done="by hand")
        assert await until(handle, "completed")
        assert await handle.result() == "by hand"
        assert did == ["letter"]

    durably(main)
