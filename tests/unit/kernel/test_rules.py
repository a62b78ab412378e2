"""The rules of design 1.6 that the deterministic loop keeps, each with the bug that appears without it."""

from __future__ import annotations

import asyncio
import asyncio.tasks
import builtins
import gc
import itertools
import random
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from tests.unit.kernel.conftest import load

from perdure import Permanent, StepError, agent, run, step
from perdure.base import codec, limits
from perdure.base.records import Asked, Begun, Ended, Executed, Fired, decode_record, encode_record
from perdure.errors import Diverged, PerdureError
from perdure.kernel import activation as activation_module
from perdure.kernel.activation import Activation
from perdure.kernel.failure import error_data
from perdure.kernel.loop import RunTask
from perdure.kernel.spec import input_of
from perdure.testing.replay import Play, ReplayMismatch, Script, check, play, replay_prefixes

primitives = load("primitive_agents")


@step
async def work(tag: Any) -> Any:
    return tag


@step(effect="read")
async def look(tag: Any) -> Any:
    return tag


@step
async def keep(values: list[Any]) -> list[Any]:
    values.append("the step's own")
    return values


@step(raises=KeyError)
async def refuse(kind: str) -> None:
    match kind:
        case "declared":
            raise KeyError("gone")
        case "permanent":
            raise Permanent("no way")
        case _:
            error = ValueError("bad", 7)
            error.data = {"code": [1, 2]}
            raise error


def live(agent: Any, *args: Any, run_id: str = "r", steps: int = 0) -> Activation:
    """A run in memory that has begun and got the results of its first steps."""
    activation = Activation(run_id, agent.spec, input_of(args, {}))
    activation.begin(1_000.0, 1)
    for _ in range(steps):
        ask = min(activation.open.values(), key=lambda ask: ask.position)
        (first, *_), _ = codec.decode(ask.args)
        activation.deliver(Executed(1_000.0, ask.position, 1, codec.encode(first)))
    return activation


# 1: everything that enters the loop is a record


@agent
async def rules_race() -> Any:
    timer = asyncio.create_task(asyncio.sleep(1, "timer"))
    result = asyncio.create_task(work("result"))
    order = []
    for done in asyncio.as_completed([timer, result]):
        order.append(await done)
        await look(order[-1])
    return order


def test_a_timer_and_a_result_that_are_due_together_keep_their_places() -> None:
    """1.6.1: which came first is on record: either order replays as it was, from every prefix."""
    at = 1_001.0
    orders = []
    for timer_first in (True, False):
        activation = live(rules_race)
        records: list[Any] = [Fired(at, 1), Executed(at, 1, 1, codec.encode("result"))]
        for record in records if timer_first else reversed(records):
            activation.deliver(record)
        delivered = activation.take()[0]
        whole = play(rules_race, journal=delivered, run_id="r")
        for cut in range(len(delivered), len(whole.journal) + 1):
            assert play(rules_race, journal=whole.journal[:cut], run_id="r").journal == whole.journal
        orders.append(whole.result)
    assert orders == [["timer", "result"], ["result", "timer"]]


def test_without_a_record_of_the_timer_the_two_change_places() -> None:
    """1.6.1: a journal that keeps only results cannot tell when the timer fired; the replay asks for something else."""
    activation = live(rules_race)
    activation.deliver(Fired(1_001.0, 1))
    activation.deliver(Executed(1_001.0, 1, 1, codec.encode("result")))
    records = [decode_record(data) for data in activation.take()[0]]
    without = [record for record in records if not isinstance(record, Fired)]
    again = Activation("r", rules_race.spec, input_of((), {}))
    with pytest.raises(Diverged):
        again.feed(without)


# 2: asyncio alone is not deterministic


@pytest.mark.parametrize("name", ["set_of_tasks", "every_task", "wait_on_gatherings"])
def test_tasks_and_futures_that_hash_by_address_do_not_replay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6.2: sets of tasks iterate in the order of their hashes; with hashes that differ from process to process
    the replay goes wrong."""
    script = Script(steps=primitives.SCRIPTED)
    whole = check(primitives.AGENTS[name], script=script)
    hashes = lambda thing: crc32(repr((salt, getattr(thing, "number", 0) or len(repr(thing)))).encode())
    salt = 0
    monkeypatch.setattr(RunTask, "__hash__", hashes)
    gathering = asyncio.tasks._GatheringFuture
    monkeypatch.setattr(gathering, "__hash__", object.__hash__)
    if name == "wait_on_gatherings":
        count = itertools.count(1)
        monkeypatch.setattr(
            gathering, "__hash__", lambda future: future.__dict__.setdefault("n", crc32(b"%d" % next(count)))
        )
    differing = 0
    for salt in range(1, 6):  # noqa: B007  # read by `hashes`
        try:
            differing += (
                play(primitives.AGENTS[name], script=script, journal=whole.journal[:-3]).journal != whole.journal
            )
        except Diverged:
            differing += 1
    assert differing


def test_as_completed_in_the_order_of_addresses_does_not_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6.2: `as_completed` puts coroutines, which hash by address, into a set; taken in any other order the
    replay goes wrong."""
    many, script = primitives.AGENTS["many_as_completed"], Script(steps=primitives.SCRIPTED)
    whole = check(many, script=script)

    def by_address(items: Any = ()) -> Any:
        kept = list(items)
        random.shuffle(kept)
        return dict.fromkeys(kept) if any(map(asyncio.iscoroutine, kept)) else builtins.set(kept)

    monkeypatch.setattr(asyncio.tasks, "set", by_address)
    with pytest.raises((Diverged, ReplayMismatch)):
        replay_prefixes(many, whole=whole, script=script)


def test_the_tasks_of_a_run_are_its_own_and_in_creation_order() -> None:
    """1.6.2: `all_tasks()` gives this run's tasks only, in the same order whatever else the process does."""
    agent = primitives.AGENTS["every_task"]
    script = Script(steps=primitives.SCRIPTED)
    alone = play(agent, script=script)
    others = [live(agent, run_id=f"other {n}") for n in range(20)]
    assert play(agent, script=script).journal == alone.journal
    for other in others:
        other.drop()


def test_tasks_of_many_runs_do_not_collide() -> None:
    """asyncio keeps all tasks of a process in one set: the numbers by which they hash differ from run to run."""
    activations = [Activation(f"run {n}", rules_race.spec, input_of((), {})) for n in range(50)]
    assert len({activation.loop.take_number() for activation in activations}) == 50


# 3: no aliasing


@agent
async def rules_alias(values: list[Any]) -> Any:
    kept = asyncio.create_task(keep(values))
    await asyncio.sleep(0)
    values.append("added after it was asked")
    result = await kept
    result.append("added to the result")
    again = await keep([1])
    return [values, result, again]


def test_what_is_passed_to_a_step_is_a_copy_and_so_is_what_it_gives() -> None:
    """1.6.3: arguments are as they were when the step was asked, and neither side sees what the other does to them."""
    given = ["given"]
    returned: list[Any] = []

    def scripted(values: list[Any]) -> list[Any]:
        returned.extend(values)
        values.append("the step's own")
        return returned

    whole = check(rules_alias, given, script=Script())
    assert whole.result == [
        ["given", "added after it was asked"],
        ["given", "the step's own", "added to the result"],
        [1, "the step's own"],
    ]
    assert given == ["given"]
    play(rules_alias, given, script=Script(steps={"keep": scripted}))
    assert returned == ["given", 1], "the agent's append must not reach the step's own list"


# 4: errors


@agent
async def rules_errors() -> Any:
    seen: list[Any] = []
    for kind in ("declared", "permanent", "other"):
        try:
            await refuse(kind)
        except KeyError as exc:
            seen.append(["KeyError", list(exc.args)])
        except StepError as exc:
            seen.append([exc.type, exc.message, exc.data, exc.step, exc.position, str(exc)])
    return seen


def test_errors_replay_as_they_were_live() -> None:
    """1.6.4: a failed step raises a StepError with type, message and data, or a class named in `raises`; the same
    from every prefix."""
    whole = check(rules_errors)
    assert whole.result == [
        ["KeyError", ["gone"]],
        ["Permanent", "no way", None, "refuse", 2, "Permanent: no way"],
        ["ValueError", "('bad', 7)", {"code": [1, 2]}, "refuse", 3, "ValueError: ('bad', 7)"],
    ]


@step(raises=(ExceptionGroup, StopIteration))
async def refuse_in_a_group() -> None: ...


@pytest.mark.parametrize("raised", [ExceptionGroup("several", [ValueError(1), KeyError(2)]), StopIteration(3)])
def test_a_declared_error_that_cannot_be_made_again_is_a_step_error(raised: Exception) -> None:
    """1.6.4: a class in `raises` whose error is more than data does not fail the run behind the agent's back."""

    @agent(name="rules_declared_group")
    async def catches() -> Any:
        try:
            await refuse_in_a_group()
        except StepError as exc:
            return exc.type

    activation = live(catches)
    activation.deliver(Executed(1_000.0, 1, 1, error=error_data(raised, step="refuse_in_a_group", position=1)))
    assert activation.ended is not None
    assert codec.decode(activation.ended.result) == type(raised).__name__


def test_an_exception_object_handed_over_live_would_not_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6.4: if the agent got the step's own exception while it is live, the replay would take another branch."""
    real = activation_module.raise_as
    live_only = lambda error, raises: ValueError(error.message) if error.type == "ValueError" else real(error, raises)

    @agent(name="rules_own_exception")
    async def catches() -> Any:
        try:
            await refuse("other")
        except ValueError:
            return await work("as raised")
        except StepError:
            return await work("as recorded")

    monkeypatch.setattr(activation_module, "raise_as", live_only)
    whole = play(catches)
    monkeypatch.setattr(activation_module, "raise_as", real)
    with pytest.raises(Diverged):
        play(catches, journal=whole.journal)


# 9: cancellation, timeouts and effects


def stopped(agent: Any, *, done: bool, seconds: float = 9.0) -> Play:
    script = Script(order="timed", seconds=lambda *_: seconds, stopped="done" if done else "cancelled")
    return check(agent, script=script)


@agent
async def rules_wait_for() -> Any:
    try:
        return await asyncio.wait_for(work("sent"), 5)
    except TimeoutError:
        return "not sent"


@agent
async def rules_wait_for_helper() -> Any:
    async def helper() -> Any:
        return await work("sent")

    try:
        return await asyncio.wait_for(helper(), 5)
    except TimeoutError:
        return "not sent"


@agent
async def rules_timeout_last() -> Any:
    try:
        async with asyncio.timeout(5):
            return await work("sent")
    except TimeoutError:
        return "not sent"


@pytest.mark.parametrize("example", [rules_wait_for, rules_wait_for_helper, rules_timeout_last])
def test_an_effect_that_happened_is_never_taken_for_one_that_did_not(example: Any) -> None:
    """1.6.9: `wait_for(send(), 5)` cannot send twice: if the effect could not be stopped, its result is what the
    code gets."""
    assert stopped(example, done=True).result == "sent"
    assert stopped(example, done=False).result == "not sent"


def test_giving_up_at_once_would_send_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6.9: were the awaiter let go at its timeout, the code would think that nothing was sent."""
    from perdure.kernel.ask import AskFuture
    from perdure.kernel.loop import RunFuture

    monkeypatch.setattr(AskFuture, "cancel", RunFuture.cancel)
    script = Script(order="timed", seconds=lambda *_: 9.0, stopped="done")
    assert play(rules_wait_for, script=script).result == "not sent"


@agent
async def rules_timeout_of_several() -> Any:
    seen: list[Any] = []
    try:
        async with asyncio.timeout(5):
            seen.append(await work("first"))
            seen.append(await work("second"))
    except TimeoutError:
        seen.append("timeout")
    return seen


def test_a_timeout_over_several_steps_strikes_after_the_effect_that_was_running() -> None:
    """1.6.9: the running effect's result arrives, the next one does not start, then comes the TimeoutError."""
    whole = stopped(rules_timeout_of_several, done=True)
    assert whole.result == ["first", "timeout"]
    assert whole.calls == ("work",)
    assert stopped(rules_timeout_of_several, done=False).result == ["timeout"]


@agent
async def rules_group_abort() -> Any:
    results: list[Any] = []
    tasks: list[asyncio.Task[Any]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(work("an effect"))]
            await look("a read")
            raise KeyError("the body fails")
    except* KeyError:
        results = [task.result() if not task.cancelled() else "cancelled" for task in tasks]
    return results


def test_an_aborted_group_waits_for_its_effects_and_keeps_their_results() -> None:
    """1.6.9: a task that is one effect ends with that effect's outcome, also when its group is aborted."""
    seconds = lambda tag: 1.0 if tag == "a read" else 9.0
    for done, expected in (("done", ["an effect"]), ("cancelled", ["cancelled"])):
        whole = check(rules_group_abort, script=Script(order="timed", seconds=seconds, stopped=done))
        assert whole.result == expected


@agent
async def rules_cleanup() -> Any:
    try:
        await work("main")
        await work("never")
    finally:
        await work("cleanup")


@agent
async def rules_cleanup_in_wait_for() -> Any:
    async def careful() -> None:
        try:
            await work("main")
        finally:
            await work("cleanup")

    await asyncio.wait_for(careful(), 60)


@pytest.mark.parametrize("stopped", ["done", "cancelled"])
@pytest.mark.parametrize("example", [rules_cleanup, rules_cleanup_in_wait_for])
def test_a_cancelled_run_awaits_its_cleanup_steps(example: Any, stopped: Any) -> None:
    """1.6.9: whether or not the running effect could be stopped, the cancellation strikes there and `finally` may
    await steps."""
    script = Script(order="timed", seconds=lambda tag: 9.0, stopped=stopped, cancel_after_s=5.0)
    whole = check(example, script=script)
    executed = [record.position for record in whole.records if isinstance(record, Executed) and not record.cancelled]
    assert whole.status == "cancelled"
    assert whole.asked == [(1, "work"), (2, "work")]
    assert executed == ([1, 2] if stopped == "done" else [2])


@agent
async def rules_abandoned_reads() -> Any:
    with suppress(TimeoutError):
        await asyncio.wait_for(look("slow"), 1)
    await asyncio.sleep(5)
    return "went on"


def test_reads_are_abandoned_at_once_and_not_taken_up_again() -> None:
    """1.6.9: nobody waits for a read whose awaiter is gone: no outcome is recorded, and a replay leaves it alone."""
    whole = check(rules_abandoned_reads, script=Script(order="timed", seconds=lambda tag: 100.0))
    assert whole.result == "went on"
    assert not [record for record in whole.records if isinstance(record, Executed)]
    again = Activation("played", rules_abandoned_reads.spec, input_of((), {}))
    again.feed([record for record in whole.records if not isinstance(record, Ended)][:3])
    assert again.open == {}
    again.drop()


@agent
async def rules_unwanted() -> Any:
    task = asyncio.create_task(work("unwanted"))
    await work("trigger")
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


def test_an_effect_that_nobody_wants_any_more_is_told_to_stop_also_after_a_replay() -> None:
    """1.6.9: a decision without an outcome whose awaiter was cancelled is known as such when the journal has been
    replayed."""
    activation = live(rules_unwanted)
    activation.deliver(Executed(1_000.0, 1, 1, codec.encode("trigger")))
    records = [decode_record(data) for data in activation.take()[0]]
    again = Activation("r", rules_unwanted.spec, input_of((), {}))
    again.feed(records)
    assert [(ask.position, ask.stop_wanted) for ask in again.open.values()] == [(2, True)]
    again.drop()
    activation.drop()


@agent
async def rules_asked_and_dropped() -> Any:
    await work("first")
    task = asyncio.create_task(work("second"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return "end"


def test_what_is_asked_and_unwanted_in_one_breath_stays_unwanted_when_only_the_ask_was_lost() -> None:
    """1.6.9: asked, cancelled, and killed before any of it was written: the replay asks again and says again that
    it is unwanted."""
    whole = play(rules_asked_and_dropped)
    first = next(n for n, record in enumerate(whole.records, 1) if isinstance(record, Executed))
    again = Activation("played", rules_asked_and_dropped.spec, input_of((), {}))
    again.feed(whole.records[:first])
    _, asks, stops = again.take()
    assert [ask.position for ask in asks] == [2]
    assert stops == asks
    again.drop()


# 14 and 20


@agent
async def rules_leftovers() -> Any:
    async def forever() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            await work("cleanup of a leftover")

    tasks = [asyncio.create_task(forever()) for _ in range(2)]
    await asyncio.sleep(0)
    return len(tasks)


def test_leftover_tasks_are_settled_before_the_run_ends() -> None:
    """1.6.14: what a function agent left running is cancelled, its cleanup steps are executed and recorded, then
    the run ends."""
    whole = check(rules_leftovers)
    assert whole.result == 2
    assert [type(record) for record in whole.records] == [Begun, Asked, Asked, Executed, Executed, Ended]


def test_without_settling_the_cleanup_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6.14: were the run over as soon as its function returns, its tasks' cleanup would never happen."""
    monkeypatch.setattr(Activation, "_wind_up", lambda self: None)
    monkeypatch.setattr(activation_module.RunLoop, "live_tasks", lambda self: [])
    assert play(rules_leftovers).calls == ()


@agent
async def rules_positions() -> Any:
    first, second = work("made first"), work("made second")
    return [await second, await first]


def test_a_steps_position_is_taken_when_it_first_runs() -> None:
    """1.6.20: the order in which coroutines are made says nothing; the order in which they run does."""
    whole = check(rules_positions)
    args = [codec.decode(record.args)[0][0] for record in whole.records if isinstance(record, Asked)]
    assert args == ["made second", "made first"]


# What a loop must do besides


@agent
async def rules_callback_errors() -> Any:
    loop = asyncio.get_running_loop()

    def raises(exc: BaseException) -> None:
        raise exc

    loop.call_soon(raises, asyncio.CancelledError())
    loop.call_soon(raises, ValueError("in a callback"))
    await asyncio.sleep(0)
    return await work("goes on")


def test_a_callback_that_raises_does_not_stop_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a callback raises is logged once, live, as on any loop; a replay does not log it again."""
    whole = play(rules_callback_errors)
    assert whole.result == "goes on"
    assert len(caplog.records) == 2
    play(rules_callback_errors, journal=whole.journal)
    assert len(caplog.records) == 2


@agent
async def rules_recorded_sources() -> Any:
    first = [str(run.uuid()), run.random.random(), run.now().isoformat()]
    await work("between")
    await asyncio.sleep(60)
    return [*first, str(run.uuid()), run.random.randrange(1_000), run.now().isoformat(), run.id]


@agent
async def rules_spins() -> None:
    async def wait_for(done: list[Any]) -> None:
        while not done:
            await asyncio.sleep(0)  # THE LINE

    await asyncio.gather(wait_for([]), work("never begun"))


def test_a_loop_that_waits_for_nothing_is_stopped_and_its_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling with `sleep(0)` lets nothing in: no result can come while the loop is not quiet."""
    monkeypatch.setattr(limits, "pump_callbacks_max", 1_000)
    with pytest.raises(PerdureError) as caught:
        play(rules_spins)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith("# THE LINE"))
    assert str(caught.value).startswith(f"{__file__}:{number}: agent code went on for too long")


def test_now_random_and_uuid_are_the_runs_own() -> None:
    """`run.now()`, `run.random` and `run.uuid()` give the same from every prefix, and time moves with the journal."""
    result = check(rules_recorded_sources).result
    assert result[0] != result[3]
    assert result[2].endswith("00:16:40+00:00")
    assert result[5].endswith("00:17:40+00:00")


def test_the_journal_of_a_played_run_is_readable_data() -> None:
    """Records are plain data: decoded and encoded they are the same bytes."""
    whole = play(rules_race)
    assert tuple(encode_record(record) for record in whole.records) == whole.journal
    gc.collect()
