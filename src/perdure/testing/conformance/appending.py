"""Appends: fenced, in order, all or nothing per run (J1, L1; design 1.6.5, 1.6.8, 1.6.10, 1.6.11)."""

from __future__ import annotations

from typing import Any, Final

from perdure.base.records import Executed, encode_record
from perdure.base.status import ControlKind, Reason, Status
from perdure.errors import LeaseLost
from perdure.store.contract import Progress, Pulse, RunChange, RunWrite, Verdict
from perdure.testing.conformance.kit import Kit, begun, ended, error_of, executed

DONE, FENCED, CONFLICT, CONTROL = Verdict.DONE, Verdict.FENCED, Verdict.CONFLICT, Verdict.CONTROL


async def a_batch_is_written_run_by_run(kit: Kit) -> None:
    """A verdict for each write, in order; refused runs do not stop the others."""
    worker = await kit.worker()
    runs = [await kit.held(f"r{n}", worker) for n in range(5)]
    writes = [RunWrite(run.num, run.epoch, 1, [begun(), executed(1)]) for run in runs]
    writes[1].epoch = 9
    writes[3].seq = 2
    appended = await kit.store.append(worker, writes)
    assert appended.verdicts == [DONE, FENCED, DONE, CONFLICT, DONE]
    assert [len(await kit.store.journal(run.num)) for run in runs] == [2, 0, 2, 0, 2]


async def a_gap_is_refused(kit: Kit) -> None:
    """`seq` must be the stored next number."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    assert await kit.write(worker, run, begun(), seq=2) is CONFLICT
    assert await kit.write(worker, run, begun(), seq=0) is CONFLICT
    assert await kit.write(worker, run, begun(), seq=1) is DONE
    assert await kit.write(worker, run, executed(1), seq=3) is CONFLICT
    assert await kit.store.journal(run.num) == [begun()]


async def another_record_under_a_taken_number_is_refused(kit: Kit) -> None:
    """A record once committed is never changed (J1)."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.write(worker, run, begun(), executed(1))
    assert await kit.write(worker, run, executed(9), seq=2) is CONFLICT
    assert await kit.write(worker, run, begun(), executed(9), seq=1) is CONFLICT
    assert await kit.store.journal(run.num) == [begun(), executed(1)]


async def the_same_write_again_is_done(kit: Kit) -> None:
    """A write whose answer was lost can be sent again; it is stored once."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    change = RunChange(Status.WAITING, waiting_on="timer", ready_at=kit.world.time + 9)
    for _ in range(3):
        assert await kit.write(worker, run, begun(), executed(1), change=change) is DONE
    assert await kit.store.journal(run.num) == [begun(), executed(1)]


async def the_same_write_again_may_have_grown(kit: Kit) -> None:
    """What is stored is recognised, what is new is added."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.write(worker, run, begun(), executed(1))
    assert await kit.write(worker, run, begun(), executed(1), executed(2)) is DONE
    assert await kit.store.journal(run.num) == [begun(), executed(1), executed(2)]


async def the_same_write_again_after_letting_go_is_done(kit: Kit) -> None:
    """Also if it was the one that let the run go, and somebody else holds it by now."""
    worker, other = await kit.worker("one"), await kit.worker("two")
    run = await kit.held("r", worker)
    change = RunChange(Status.QUEUED, ready_at=kit.world.time, release=True)
    assert await kit.write(worker, run, begun(), change=change) is DONE
    (taken,) = await kit.claim(other)
    assert await kit.write(worker, run, begun(), change=change) is DONE
    assert (await kit.row("r")).worker == other
    assert await kit.write(other, taken.run, begun()) is CONFLICT  # it is another write: of another epoch


async def another_worker_is_fenced(kit: Kit) -> None:
    """A run is written only by the worker that holds it."""
    holder, other = await kit.worker("one"), await kit.worker("two")
    run = await kit.held("r", holder)
    assert await kit.write(other, run, begun()) is FENCED
    assert await kit.store.journal(run.num) == []


async def an_older_epoch_is_fenced(kit: Kit) -> None:
    """Also for the same worker: it let go and took the run again."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.let_go(worker, run, Status.QUEUED, ready_at=kit.world.time)
    (taken,) = await kit.claim(worker)
    assert taken.run.epoch == 2
    assert await kit.write(worker, run, executed(1), seq=2) is FENCED
    assert await kit.write(worker, taken.run, executed(1), seq=2) is DONE
    assert await kit.write(worker, run, executed(2), seq=3) is FENCED


async def a_free_run_is_fenced(kit: Kit) -> None:
    """Nobody writes to a run that nobody holds."""
    worker = await kit.worker()
    run = await kit.queued("r")
    assert await kit.write(worker, run, begun()) is FENCED


async def an_unknown_run_is_fenced(kit: Kit) -> None:
    """A number without a run is not written to."""
    worker = await kit.worker()
    await kit.held("r", worker)
    write = RunWrite(4711, 1, 1, [begun()])
    assert (await kit.store.append(worker, [write])).verdicts == [FENCED]


async def a_fenced_write_changes_nothing(kit: Kit) -> None:
    """No record, no status, no progress, no pulse, no consumed request."""
    holder, other = await kit.worker("one"), await kit.worker("two")
    run = await kit.held("r", holder)
    await kit.ask("r", ControlKind.PAUSE)
    before = await kit.row("r")
    change = RunChange(Status.FAILED, release=True)
    fields: dict[str, Any] = {
        "change": change,
        "progress": Progress(1),
        "pulses": [Pulse(1, b"x")],
        "controls_seen": 99,
    }
    assert await kit.write(other, run, begun(), **fields) is FENCED
    assert await kit.row("r") == before
    assert await kit.store.pulses(run.num) == {}
    assert len(await kit.store.controls(holder, after=0)) == 1


async def a_buried_worker_writes_nothing(kit: Kit) -> None:
    """LeaseLost for the whole batch, whatever the worker's clock says (L1)."""
    worker, other = await kit.worker("one"), await kit.worker("two")
    runs = [await kit.held(f"r{n}", worker) for n in range(3)]
    await kit.store.bury(worker, dead=True)
    await kit.claim(other, limit=2)
    writes = [RunWrite(run.num, run.epoch, 1, [begun()]) for run in runs]
    assert isinstance(await error_of(kit.store.append(worker, writes)), LeaseLost)
    assert isinstance(await error_of(kit.store.append(worker, writes[:1])), LeaseLost)
    assert [await kit.store.journal(run.num) for run in runs] == [[], [], []]


async def newer_control_refuses_a_guarded_write(kit: Kit) -> None:
    """`unless_control`: an effect does not start if a request is newer (design 1.6.10)."""
    worker = await kit.worker()
    run, calm = await kit.held("r", worker), await kit.held("calm", worker)
    await kit.ask("r", ControlKind.CANCEL)
    (asked,) = await kit.store.controls(worker, after=0)
    assert await kit.write(worker, run, begun(), unless_control=asked.id - 1) is CONTROL
    assert await kit.store.journal(run.num) == []
    assert await kit.write(worker, calm, begun(), unless_control=0) is DONE
    assert await kit.write(worker, run, begun(), unless_control=asked.id) is DONE


async def an_unguarded_write_ignores_control(kit: Kit) -> None:
    """A result is recorded whatever was asked meanwhile."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.ask("r", ControlKind.CANCEL)
    assert await kit.write(worker, run, begun()) is DONE


async def control_between_two_writes_is_noticed(kit: Kit) -> None:
    """Also after the store has seen this run many times, and from another store object."""
    worker, far = await kit.worker(), await kit.another()
    run = await kit.held("r", worker)
    for n in range(1, 6):
        assert await kit.write(worker, run, executed(n), seq=n, unless_control=0) is DONE
    await far.control("r", ControlKind.PAUSE, body=b"", by="someone")
    assert await kit.write(worker, run, executed(6), seq=6, unless_control=0) is CONTROL


async def consumed_control_is_gone(kit: Kit) -> None:
    """`controls_seen`: up to that id, of this run only."""
    worker = await kit.worker()
    run, other = await kit.held("r", worker), await kit.held("other", worker)
    for run_id in ("r", "other", "r"):
        await kit.ask(run_id, ControlKind.INTERRUPT)
    first, second, third = await kit.store.controls(worker, after=0)
    await kit.write(worker, run, begun(), controls_seen=second.id)
    assert [row.id for row in await kit.store.controls(worker, after=0)] == [second.id, third.id]
    await kit.write(worker, other, begun(), controls_seen=third.id)
    await kit.write(worker, run, seq=2, controls_seen=third.id)
    assert await kit.store.controls(worker, after=0) == []
    assert first.run == third.run == run.num


async def the_control_mark_only_grows(kit: Kit) -> None:
    """Also when requests are consumed; it says that `controls` is worth asking."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    marks: list[int] = []
    for n in range(1, 7):
        if n % 2 == 0:
            await kit.ask("r", ControlKind.PAUSE)
        seen = marks[-1] if marks else 0
        write = RunWrite(run.num, run.epoch, n, [executed(n)], controls_seen=seen)
        marks.append((await kit.store.append(worker, [write])).control_mark)
    assert marks == sorted(marks)
    assert marks[0] < marks[1] == marks[2] < marks[3] == marks[4] < marks[5]


async def a_released_run_is_held_by_nobody(kit: Kit) -> None:
    """With the status and the time the worker gave it."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.let_go(worker, run, Status.WAITING, waiting_on="timer", ready_at=kit.world.time + 60)
    row = await kit.row("r")
    assert (row.worker, row.status, row.waiting_on) == (None, "waiting", "timer")
    assert row.ready_at == kit.world.time + 60
    assert await kit.write(worker, run, executed(1), seq=2) is FENCED


async def a_request_that_meets_a_release_is_not_lost(kit: Kit) -> None:
    """A run let go with a request nobody saw becomes ready, so that a worker finds it."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.ask("r", ControlKind.CANCEL)
    await kit.let_go(worker, run, Status.WAITING, waiting_on="human")
    (taken,) = await kit.claim(worker)
    assert [row.kind for row in taken.controls] == [ControlKind.CANCEL]


async def a_request_does_not_wake_what_cannot_be_replayed(kit: Kit) -> None:
    """Parked as diverged or damaged with a request that fits no such run: it keeps the request until somebody resumes it, or other code comes."""
    worker = await kit.worker()
    for number, reason in enumerate((Reason.DIVERGED, Reason.STORE)):
        run = await kit.held(f"r{number}", worker)
        await kit.ask(run.id, ControlKind.CANCEL)
        row = await kit.let_go(worker, run, Status.PARKED, reason=reason)
        assert (row.status, row.ready_at) == ("parked", None)
        await kit.ask(run.id, ControlKind.RESUME)
        (taken,) = await kit.claim(worker)
        assert [row.kind for row in taken.controls] == [ControlKind.CANCEL, ControlKind.RESUME]
        await kit.ask(run.id, ControlKind.TERMINATE)
        await kit.let_go(worker, taken.run, Status.PARKED, reason=reason)
        (taken,) = await kit.claim(worker)
        await kit.let_go(worker, taken.run, Status.CANCELLED)


async def an_end_settles_all_requests(kit: Kit) -> None:
    """Nothing is left to ask of a run that has ended."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.ask("r", ControlKind.PAUSE)
    await kit.write(worker, run, begun(), ended(), change=RunChange(Status.COMPLETED, release=True))
    row = await kit.row("r")
    assert (row.status, row.ready_at) == ("completed", None)
    assert await kit.claim(worker) == []


async def a_record_can_be_big(kit: Kit) -> None:
    """A megabyte and nothing, in one batch with others."""
    worker = await kit.worker()
    runs = [await kit.held(f"r{n}", worker) for n in range(3)]
    big = encode_record(Executed(2.0, position=1, attempt=1, result=b"b" * 1_000_000))
    bodies = [big, begun(), executed(1)]
    writes = [RunWrite(run.num, 1, 1, [body]) for run, body in zip(runs, bodies, strict=True)]
    assert (await kit.store.append(worker, writes)).verdicts == [DONE] * 3
    assert [(await kit.store.journal(run.num))[0] for run in runs] == bodies


PROMISES: Final = (
    a_batch_is_written_run_by_run,
    a_gap_is_refused,
    another_record_under_a_taken_number_is_refused,
    the_same_write_again_is_done,
    the_same_write_again_may_have_grown,
    the_same_write_again_after_letting_go_is_done,
    another_worker_is_fenced,
    an_older_epoch_is_fenced,
    a_free_run_is_fenced,
    an_unknown_run_is_fenced,
    a_fenced_write_changes_nothing,
    a_buried_worker_writes_nothing,
    newer_control_refuses_a_guarded_write,
    an_unguarded_write_ignores_control,
    control_between_two_writes_is_noticed,
    consumed_control_is_gone,
    the_control_mark_only_grows,
    a_released_run_is_held_by_nobody,
    a_request_that_meets_a_release_is_not_lost,
    a_request_does_not_wake_what_cannot_be_replayed,
    an_end_settles_all_requests,
    a_record_can_be_big,
)
