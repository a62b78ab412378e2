"""Y1: killed during recovery, again and again. Y3: killed while asleep. Y4: killed after a request was acknowledged."""

from __future__ import annotations

import contextlib

import apsw
import pytest
from tests.crash.matrix import TABLE, check, killed, set_dedupe

from perdure.api.handle import Handle
from perdure.base import limits
from perdure.testing.crash import Start

DAY_S = 86_400.0
deaths_max = limits.crashes_without_progress_max


@pytest.mark.parametrize(
    "point",
    ["step.durable:at=act", "open.after_prepare", "claim.before_commit", "claim.after_commit", "bury.after_commit"],
)
def test_y1_recovery_is_idempotent(case, point):
    """Killed at the same place of every recovery: nothing is called, nothing is added to the journal, and then it goes on."""
    killed(case.begin("one", "idempotent", "async", faults="step.durable:at=act:kill"))
    history = journal(case)
    for _ in range(5):
        killed(case.spawn(faults=f"{point}:kill"))
        assert journal(case) == history
        assert case.counts() == (0, 0)
    case.go_on()
    check(case, TABLE["C2"]["idempotent"])


def test_y1_a_crash_loop_is_parked(case):
    """After so many deaths without progress the run is parked and killed no more workers; a person's `resume` lets it go on."""
    killed(case.begin("one", "idempotent", "async", faults="step.durable:at=act:kill"))
    deaths = 1
    while deaths < 2 * deaths_max and case.spawn(faults="step.durable:at=act:kill").wait() != 0:
        deaths += 1
    assert deaths == deaths_max + 1
    look = case.look()
    assert (look.status, look.reason, look.view.attempt) == ("parked", "crash_loop", deaths + 1)
    assert case.counts() == (0, 0)
    case.go_on()
    assert case.look().reason == "crash_loop"
    case.kit.ask(case.store, "r", Handle.resume)
    case.go_on()
    check(case, TABLE["C2"]["idempotent"])


def test_y1_progress_resets_the_count(case):
    """One step between two deaths is progress: a long run may die far more often than the limit, and each step is done once."""
    deaths = 2 * deaths_max
    process = case.begin("steps", deaths, faults="step.durable:at=act:nth=2:kill")
    for _ in range(deaths):
        if process.wait() == 0:
            break
        assert process.wait() == -9
        process = case.spawn(faults="step.durable:at=act:nth=2:kill")
    assert process.wait() == 0
    assert (case.look().status, case.look().result) == ("completed", deaths)
    assert case.counts() == (deaths, deaths)


@pytest.mark.parametrize("rule", ["idempotent", "probe", "once"])
def test_y1_unknown_outcomes_add_up_to_nothing(case, rule):
    """Killed in each recovery after the effect: the keyed effect stays applied once, the others are not called again."""
    set_dedupe(case, rule)
    case.book.plan("act", after="kill", times=4)
    killed(case.begin("one", rule, "async"))
    if rule == "idempotent":
        for _ in range(3):
            killed(case.spawn())
    case.go_on()
    if rule == "idempotent":
        assert case.counts() == (5, 1)
        assert case.look().result == [1, {"number": 1, "value": 1}]
    else:
        check(case, TABLE["C4"][rule])


def test_y3_a_long_sleep_across_restarts_fires_once(case):
    """Asleep for three days: processes come, are killed and go; nothing runs before its time, and then it fires once."""
    killed_asleep(case, 3 * DAY_S)
    for days in (0.0, 1.0, 2.9):
        process = case.spawn(clock_ahead_s=days * DAY_S, forever=True, lease_ttl_s=10 * DAY_S)
        case.spawn(clock_ahead_s=days * DAY_S).wait()
        process.kill()
        assert (case.look().status, case.look().view.waiting_on) == ("waiting", "timer")
        assert case.counts() == (0, 0)
    for _ in range(2):
        case.go_on(clock_ahead_s=3.1 * DAY_S)
        assert case.look().status == "completed"
        assert case.counts() == (1, 1)
        assert [entry.kind for entry in case.look().history].count("timer") == 1


@pytest.mark.parametrize(
    "point",
    ["claim.after_commit", "step.decided:at=act", "writer.before_commit", "step.durable:at=act", "step.settled:at=act"],
)
def test_y3_killed_as_it_wakes_up(case, point):
    """The wake-up is durable: killed at any place of it, it wakes up again, and the effect is applied once."""
    killed_asleep(case, DAY_S)
    killed(case.spawn(clock_ahead_s=2 * DAY_S, faults=f"{point}:kill"))
    case.go_on(clock_ahead_s=2 * DAY_S)
    assert case.look().status == "completed"
    assert case.counts() == (2 if "settled" in point else 1, 1)
    assert case.counts("choose") == (1, 1)
    assert [entry.kind for entry in case.look().history].count("timer") == 1


@pytest.mark.parametrize("rule", ["read", "idempotent", "probe", "once"])
def test_y4_a_pause_outlives_the_process(case, rule):
    """Pause was acknowledged, then the process was killed: the next one calls nothing, not even a repetition; resumed, the row holds."""
    set_dedupe(case, rule)
    die_after_request(case, rule, Handle.pause)
    case.go_on()
    assert case.look().status == "paused"
    assert case.counts() == (1, 1)
    assert case.book.count("act").probes == 0
    case.kit.ask(case.store, "r", Handle.resume)
    case.go_on()
    check(case, TABLE["C4"][rule])


@pytest.mark.parametrize("rule", ["read", "idempotent", "probe", "once"])
def test_y4_a_cancel_outlives_the_process(case, rule):
    """Cancel was acknowledged, then the process was killed: no new effect; what may have happened is judged by its rule."""
    set_dedupe(case, rule)
    die_after_request(case, rule, Handle.cancel)
    case.go_on()
    look = case.look()
    assert (look.reason or look.status) == ("in_doubt" if rule == "once" else "cancelled")
    assert case.counts() == (1, 1)
    assert case.counts("close") == (0, 0)
    if rule == "once":
        case.kit.ask(case.store, "r", lambda handle: handle.resolve("act", done=1))
        case.go_on()
        assert case.look().status == "cancelled"
        assert case.counts("close") == (0, 0)


@pytest.mark.parametrize("point", ["step.durable:at=act", "append.before_begin", "append.after_commit"])
@pytest.mark.parametrize("rule", ["idempotent", "probe", "once"])
def test_y4_control_comes_before_an_effect_that_is_about_to_start(case, rule, point):
    """Frozen on its way to an effect, from the decision to the commit of its start; pause is acknowledged meanwhile; thawed, it
    starts no effect after the one that was committed, nothing is in doubt, and resumed, each is done once."""
    too_late = (
        rule == "idempotent" and point != "append.before_begin"
    )  # its decision was committed before the request came
    process = case.begin("steps", 2, rule, faults=f"{point}:nth=1:stop", forever=True)
    case.until(lambda _: process.frozen)
    case.kit.ask(case.store, "r", Handle.pause)
    process.thaw()
    case.until(lambda look: look.status == "paused")
    assert case.counts() == (too_late, too_late)
    case.kit.ask(case.store, "r", Handle.resume)
    case.until(lambda look: look.status == "completed")
    process.kill()
    assert case.counts() == (2, 2)
    assert case.book.count("act").probes == 0


def journal(case):
    """Its entries, without what is derived from the row as it is now."""
    return [{name: value for name, value in entry.to_dict().items() if name != "key"} for entry in case.look().history]


def die_after_request(case, rule, request) -> None:
    case.book.plan("act", before="hold", after="hold")
    process = case.begin("one", rule, "async")
    case.book.wait("act", "arrived")
    case.until(lambda look: look.has("act"))
    case.book.release("act")
    case.book.wait("act", "applied")
    process.freeze()  # so that it is the next process that sees the request
    case.kit.ask(case.store, "r", request)
    process.kill()


def killed_asleep(case, seconds) -> None:
    process = case.begin("sleeper", seconds, forever=True)
    case.until(lambda look: look.status == "waiting")
    process.kill()


@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_before_the_next_attempt_outlives_the_process(case, status):
    """The target asks for an hour: the failed attempt and its wait are durable; killed meanwhile, it is tried again in time, and not before."""
    case.book.plan("act", status=status, retry_after=3600.0)
    process = case.begin("one", "patient", "async", forever=True)
    case.until(lambda look: look.view.waiting_on == "step")
    process.kill()
    case.go_on(clock_ahead_s=1800.0)
    assert case.look().status == "waiting"
    assert case.counts() == (1, 0)
    case.go_on(clock_ahead_s=4000.0)
    assert case.look().status == "completed"
    assert case.counts() == (2, 1)
    assert [attempt["error"]["type"] for attempt in case.look().step("act").attempts] == ["Refused"]


@pytest.mark.parametrize("kills", [1, 2])
def test_a_death_does_not_use_up_a_retry(case, kills):
    """Attempts that died with their process have an unknown outcome; the refusal that comes after them is the first one."""
    case.book.plan("act", before="hold", times=kills)
    case.book.plan("act", status=503, nth=kills + 1)
    for nth in range(1, kills + 1):
        process = case.begin("one", "steady", "async") if nth == 1 else case.spawn()
        case.book.wait("act", "arrived", nth)
        process.kill()
        case.book.wait("act", "lost", nth)
    case.go_on()
    assert case.look().status == "completed"
    assert case.counts() == (2, 1)
    assert case.look().step("act").attempt == kills + 2


def test_a_damaged_journal_stops_its_run_and_no_other(case):
    """A record that fails its checksum: that run is parked for a person, nothing of it is called, and the others go on."""
    killed_asleep(case, DAY_S)
    other = Start("sleeper", "other", [case.book.url, DAY_S])
    assert case.spawn(other).wait() == 0
    with contextlib.closing(apsw.Connection(str(case.store))) as db:
        db.execute("UPDATE journal SET body = zeroblob(9) WHERE run = 1 AND seq = 1")
    case.go_on(clock_ahead_s=2 * DAY_S)
    status = case.kit.ask(case.store, "r", Handle.status)
    assert (status, status.reason) == ("parked", "store")
    assert case.kit.look(case.store, "other").status == "completed"
    assert case.counts() == (1, 1)
