"""Steps: what is recorded, how often it is done, and by which key the outside world can tell."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.fundamentals.conftest import steps, until

from perdure import NotStorable, Outcome, Permanent, RunFailed, StepError, agent, run, step
from perdure.base import limits
from perdure.kernel import activation as activation_module

did: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    did.clear()


@step
async def publish(text: str) -> str:
    did.append((run.key, run.attempt))
    return f"published {text}"


@step
def publish_plainly(text: str) -> str:
    did.append(threading.current_thread() is threading.main_thread())
    return text.upper()


@agent
async def steps_one(text: str) -> str:
    return await publish(text)


def test_a_step_is_recorded_and_its_result_given_back(durably: Any) -> None:
    """The agent awaits a step like any coroutine; the history shows what was asked and what came of it."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_one, "tides")
        assert await handle.result() == "published tides"
        entry = next(entry for entry in await handle.history() if entry.kind == "step")
        assert (entry.name, entry.position, entry.effect, entry.state) == ("publish", 1, "idempotent", "executed")
        assert (entry.result, entry.attempt, entry.args) == ("published tides", 1, [["tides"], {}])

    durably(main)


def test_a_step_has_a_key_made_of_run_and_position(durably: Any) -> None:
    """`run.key` inside a step is what the target may recognise a repetition by; the history shows the same key (J4)."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_one, "tides", id="tides-1")
        await handle.result()
        assert did == [("tides-1:1", 1)]
        assert [entry.key for entry in await handle.history() if entry.kind == "step"] == ["tides-1:1"]

    durably(main)


@agent
async def steps_plain() -> list[str]:
    return list(await asyncio.gather(publish_plainly("a"), publish_plainly("b")))


def test_plain_functions_are_steps_too(durably: Any) -> None:
    """A `def` step is awaited like an async one and runs in a thread of its own."""

    async def main(app: Any) -> Any:
        return await (await app.start(steps_plain)).result()

    assert durably(main) == ["A", "B"]
    assert did == [False, False]


def test_outside_a_run_a_step_is_an_ordinary_function() -> None:
    """Called without a run nothing is recorded: an async step is a coroutine, a plain one returns its value."""
    assert asyncio.run(publish("x")) == "published x"
    assert publish_plainly("x") == "X"


@step
async def outer(text: str) -> str:
    return await publish(text) + publish_plainly("!")


@agent
async def steps_nested() -> str:
    return await outer("inner")


def test_a_step_inside_a_step_is_an_ordinary_call(durably: Any) -> None:
    """1.6.20: only the outer step is recorded; the inner one runs as part of it, under its key."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_nested, id="n")
        assert await handle.result() == "published inner!"
        assert await steps(handle) == [("outer", 1, "executed")]
        assert did[0] == ("n:1", 1)

    durably(main)


@agent
async def steps_positions() -> list[str]:
    late, early = publish("made first"), publish("made second")
    return [await early, await late]


def test_a_position_is_taken_when_the_step_first_runs(durably: Any) -> None:
    """1.6.20: two steps made in one order and awaited in the other are numbered as they are awaited."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_positions)
        await handle.result()
        args = [entry.args[0][0] for entry in await handle.history() if entry.kind == "step"]
        assert args == ["made second", "made first"]

    durably(main)


@agent
async def steps_forgotten() -> str:
    publish("not awaited")  # type: ignore[unused-coroutine]  # the mistake
    return await publish("awaited")


def test_a_step_that_was_not_awaited_is_named_with_its_line(durably: Any) -> None:
    """It did not happen, and somebody should know."""

    async def main(app: Any) -> None:
        assert await (await app.start(steps_forgotten)).result()

    with pytest.warns(RuntimeWarning, match=r"step publish was never awaited, so it did not happen") as caught:
        durably(main)
    (warning,) = caught
    assert warning.filename == __file__
    assert Path(__file__).read_text().splitlines()[warning.lineno - 1].strip().startswith('publish("not awaited")')
    assert len(did) == 1


@step
async def append(items: list[str]) -> list[str]:
    items.append("by the step")
    return items


@agent
async def steps_copies() -> Any:
    items = ["by the agent"]
    given = await append(items)
    given.append("by the agent again")
    return [items, given]


def test_a_step_gets_copies_and_gives_copies(durably: Any) -> None:
    """1.6.3: what a step does to its arguments the agent does not see, live as on replay."""

    async def main(app: Any) -> Any:
        return await (await app.start(steps_copies)).result()

    assert durably(main) == [["by the agent"], ["by the agent", "by the step", "by the agent again"]]


# Failing


@step(retries=3, backoff=0.001)
async def flaky(succeeds_at: int) -> int:
    did.append((run.attempt, run.key))
    if run.attempt < succeeds_at:
        raise ConnectionRefusedError(f"attempt {run.attempt}")
    return run.attempt


@step(effect="read", retries=2, backoff=0.001)
async def flaky_read() -> int:
    did.append((run.attempt, run.key))
    if run.attempt < 3:
        raise ConnectionRefusedError("not yet")
    return run.attempt


@agent
async def steps_retried(succeeds_at: int) -> int:
    return await flaky(succeeds_at)


@agent
async def steps_retried_read() -> int:
    return await flaky_read()


def test_a_failed_step_is_tried_again_with_the_same_key(durably: Any) -> None:
    """`retries=3`: the attempts that failed are records of their own, with their errors (1.6.13)."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_retried, 3, id="r")
        assert await handle.result() == 3
        assert did == [(1, "r:1"), (2, "r:1"), (3, "r:1")]
        entry = next(entry for entry in await handle.history() if entry.kind == "step")
        assert [attempt["error"]["message"] for attempt in entry.attempts] == ["attempt 1", "attempt 2"]

    durably(main)


def test_a_read_has_a_new_key_for_every_attempt(durably: Any) -> None:
    """1.6.6: reads' keys lie in a namespace of their own; no effect can ever have one of them."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_retried_read, id="r")
        assert await handle.result() == 3
        keys = [key for _, key in did]
        assert len(set(keys)) == 3
        assert all(key.startswith("r:read:") for key in keys)

    durably(main)


def test_out_of_retries_the_agent_gets_a_step_error(durably: Any) -> None:
    """Not caught, it ends the run as failed; the error names type, message, step and position."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_retried, 99)
        with pytest.raises(RunFailed, match="ConnectionRefusedError: attempt 4"):
            await handle.result()
        view = (await handle.status()).view
        assert (view.status, view.error["step"], view.error["position"]) == ("failed", "flaky", 1)
        assert len(did) == 4

    durably(main)


class Declined(Outcome):
    """An answer, not a failure."""


class OutOfStock(Exception):
    pass


@step(retries=5, backoff=0.001, raises=OutOfStock)
async def order(what: str) -> None:
    did.append(what)
    match what:
        case "declined":
            raise Declined("no credit")
        case "permanent":
            raise Permanent("closed for good")
        case "declared":
            raise OutOfStock("screws", 3)
        case _:
            raise TypeError("a mistake in the program")


@agent
async def steps_answers() -> list[Any]:
    seen: list[Any] = []
    for what in ("declined", "permanent", "declared", "mistake"):
        try:
            await order(what)
        except OutOfStock as exc:
            seen.append(list(exc.args))
        except StepError as exc:
            seen.append([exc.type, exc.message])
    return seen


def test_answers_and_permanent_failures_are_not_retried(durably: Any) -> None:
    """`Outcome`, `Permanent`, a class named in `raises=` and mistakes in the program are recorded at once,
    whatever `retries=` says."""

    async def main(app: Any) -> Any:
        return await (await app.start(steps_answers)).result()

    assert durably(main) == [
        ["Declined", "no credit"],
        ["Permanent", "closed for good"],
        ["screws", 3],
        ["TypeError", "a mistake in the program"],
    ]
    assert did == ["declined", "permanent", "declared", "mistake"]


@step(retries=5, backoff=0.001)
async def unstorable(big: bool) -> Any:
    did.append(big)
    return "x" * 100_000 if big else object()


@agent
async def steps_unstorable(big: bool) -> str:
    try:
        await unstorable(big)
    except StepError as exc:
        return exc.type
    return "stored"


@agent
async def steps_neighbour() -> str:
    for n in range(5):
        await publish(str(n))
    return "not disturbed"


@pytest.mark.parametrize(("big", "kind"), [(False, "NotStorable"), (True, "PayloadTooLarge")])
def test_a_result_that_cannot_be_stored_is_that_steps_error(
    durably: Any, monkeypatch: pytest.MonkeyPatch, big: bool, kind: str
) -> None:
    """1.6.8: it is never retried, because the effect has happened; runs committed in the same batch are not touched."""
    monkeypatch.setattr(limits, "payload_bytes_max", 50_000)

    async def main(app: Any) -> None:
        handles = [
            await app.start(steps_neighbour),
            await app.start(steps_unstorable, big),
            await app.start(steps_neighbour),
        ]
        assert [await handle.result() for handle in handles] == ["not disturbed", kind, "not disturbed"]
        assert did.count(big) == 1

    durably(main)


@agent
async def steps_bad_argument() -> str:
    try:
        await publish(object())  # type: ignore[arg-type]  # that is the mistake
    except NotStorable as exc:
        return str(exc)
    return "stored"


def test_an_argument_that_cannot_be_stored_is_refused_at_the_call(durably: Any) -> None:
    """The agent gets `NotStorable` where it called the step; no position is spent on it and nothing is started."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_bad_argument)
        assert "object" in await handle.result()
        assert await steps(handle) == []
        assert did == []

    durably(main)


@agent
async def steps_bad_result() -> Any:
    await publish("done")
    return object()


def test_a_run_whose_result_cannot_be_stored_has_failed(durably: Any) -> None:
    """Its steps stay as they are; the error says what cannot be stored."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_bad_result)
        with pytest.raises(RunFailed, match="NotStorable"):
            await handle.result()
        assert await steps(handle) == [("publish", 1, "executed")]

    durably(main)


# Longer steps


@step(retries=2, backoff=0.001)
async def long_work(pages: int) -> list[int]:
    begin = run.details or 0
    for page in range(begin, pages):
        did.append(page)
        run.heartbeat(page + 1)
        if page == 1 and run.attempt == 1:
            raise ConnectionResetError("the line went dead")
    return [begin, pages]


@agent
async def steps_heartbeat() -> list[int]:
    return await long_work(4)


def test_a_heartbeats_details_reach_the_next_attempt(durably: Any) -> None:
    """`run.heartbeat(details)` says how far a step is; the next attempt reads `run.details` and goes on from there."""

    async def main(app: Any) -> Any:
        return await (await app.start(steps_heartbeat)).result()

    assert durably(main) == [2, 4]
    assert did == [0, 1, 2, 3]


@step(timeout=0.05, backoff=0.001)
async def too_slow() -> None:
    did.append("began")
    await asyncio.Event().wait()


@step(heartbeat_timeout=0.05, backoff=0.001)
async def stalls() -> None:
    run.heartbeat("alive")
    await asyncio.Event().wait()


@agent
async def steps_slow() -> list[str]:
    seen = []
    for slow in (too_slow, stalls):
        try:
            await slow()
        except StepError as exc:
            seen.append(exc.type)
    return seen


def test_a_step_that_takes_too_long_is_ended(durably: Any) -> None:
    """`timeout=` bounds each attempt, `heartbeat_timeout=` the time between two signs of life."""

    async def main(app: Any) -> Any:
        return await (await app.start(steps_slow)).result()

    assert durably(main) == ["StepTimeout", "StepStalled"]


# In doubt


gate = threading.Event()


@step(effect="once")
async def send(body: str) -> str:
    did.append(body)
    if len(did) == 1:
        raise ConnectionResetError("no answer came")
    return f"sent {body}"


@agent
async def steps_doubt() -> str:
    try:
        return await send("hello")
    except StepError as exc:
        return f"{exc.type}: {exc.message}"


@pytest.mark.parametrize(
    ("answer", "result", "sent"),
    [
        ({"done": "sent by hand"}, "sent by hand", 1),
        ({"retry": True}, "sent hello", 2),
        ({"fail": "the customer says no"}, "ResolvedAsFailed: the customer says no", 1),
    ],
)
def test_a_step_in_doubt_parks_its_run_until_a_person_decides(
    durably: Any, answer: Any, result: str, sent: int
) -> None:
    """A `once` step whose outcome is unknown is never repeated blindly: done with this value, do it again, or
    failed."""

    async def main(app: Any) -> None:
        handle = await app.start(steps_doubt)
        view = await until(handle, "parked", reason="in_doubt")
        assert "send" in view.error["message"]
        assert len(did) == 1
        await handle.resolve("send", **answer)
        await until(handle, "completed")
        assert await handle.result() == result
        assert len(did) == sent

    durably(main)


asked: list[str] = []


async def was_sent(body: str) -> Any:
    asked.append(body)
    if len(asked) < 3:
        raise ConnectionRefusedError("the target cannot be asked now")
    return "found: sent" if "arrives" in body else None


@step(effect="once", probe=was_sent, backoff=0.001, retries=1)
async def send_probed(body: str) -> str:
    did.append(body)
    if len(did) == 1:
        raise ConnectionResetError("no answer came")
    return "sent now"


@agent
async def steps_probe(body: str) -> str:
    return await send_probed(body)


@pytest.mark.parametrize(("body", "result", "sent"), [("arrives", "found: sent", 1), ("is lost", "sent now", 2)])
def test_a_probe_asks_the_world_instead_of_a_person(durably: Any, body: str, result: str, sent: int) -> None:
    """Found: its answer is the step's result. Not found: the step is done again. A probe that fails is asked
    again, without an end of the run."""
    asked.clear()

    async def main(app: Any) -> Any:
        return await (await app.start(steps_probe, body)).result()

    assert durably(main) == result
    assert (len(did), len(asked)) == (sent, 3)


def test_without_encoding_at_the_call_agent_and_step_would_share_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6.3: with a codec that hands objects through, the step's append shows up in the agent."""

    class Through:
        def __init__(self, real: Any) -> None:
            self.real, self.kept = real, {}

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def encode(self, value: Any) -> bytes:
            self.kept[str(id(value)).encode()] = value
            return str(id(value)).encode()

        def encode_call(self, args: Any, kwargs: Any) -> bytes:
            return self.encode([list(args), kwargs])

        def decode(self, data: bytes) -> Any:
            return self.kept[data] if data in self.kept else self.real.decode(data)

    from perdure.testing import replay

    through = Through(activation_module.codec)
    monkeypatch.setattr(activation_module, "codec", through)
    monkeypatch.setattr(replay, "codec", through)
    played = replay.play(steps_copies)
    assert through.decode(played.ended.result)[0] != ["by the agent"]
