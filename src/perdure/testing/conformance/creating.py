"""Runs are recorded once, and read back as they were written."""

from __future__ import annotations

from typing import Final

from perdure.base.records import ErrorData
from perdure.base.status import Status
from perdure.errors import LeaseLost
from perdure.store.contract import Pulse, RunChange, Verdict
from perdure.testing.conformance.kit import Kit, begun, ended, error_of, executed, new


async def a_new_run_is_reported_as_new(kit: Kit) -> None:
    """True the first time; the row says what was given."""
    made, added = await kit.store.create(new("r", queue="q", priority=3, tags={"k": "v"}, input=b"\x00\xff"))
    run = made.run
    assert added
    assert made.controls == []
    assert (run.id, run.agent, run.module, run.queue, run.priority, run.tags) == ("r", "a", "m", "q", 3, {"k": "v"})
    assert (run.input, run.status, run.worker, run.seq, run.attempt, run.crashes) == (
        b"\x00\xff",
        "queued",
        None,
        0,
        1,
        0,
    )
    assert run.created_at == run.updated_at == kit.world.time


async def the_same_id_again_gives_the_run_that_is_there(kit: Kit) -> None:
    """Nothing of it changes, whatever the second caller says."""
    first, _ = await kit.store.create(new("r"))
    second, added = await kit.store.create(new("r", agent="b", input=b"other", priority=9))
    assert not added
    assert second.run == first.run


async def the_same_id_again_does_not_take_a_held_run(kit: Kit) -> None:
    """Whoever holds it keeps it."""
    holder, other = await kit.worker("one"), await kit.worker("two")
    await kit.held("r", holder)
    made, added = await kit.store.create(new("r"), worker=other)
    assert not added
    assert made.run.worker == holder


async def the_same_id_again_does_not_claim_a_free_run(kit: Kit) -> None:
    """Only a new run is claimed by its creator."""
    worker = await kit.worker()
    await kit.queued("r")
    made, _ = await kit.store.create(new("r"), worker=worker)
    assert made.run.worker is None


async def creating_with_a_worker_claims_in_the_same_transaction(kit: Kit) -> None:
    """A new run that is ready now is running and held, at epoch 1."""
    worker = await kit.worker("me")
    run = await kit.held("r", worker)
    assert (run.status, run.worker, run.worker_name, run.epoch, run.ready_at) == ("running", worker, "me", 1, None)


async def a_delayed_run_is_not_claimed_by_its_creator(kit: Kit) -> None:
    """It waits in the queue until it is ready."""
    worker = await kit.worker()
    run = await kit.held("r", worker, ready_at=kit.world.time + 5)
    assert (run.status, run.worker, run.ready_at) == ("queued", None, kit.world.time + 5)


async def a_buried_worker_creates_no_run_for_itself(kit: Kit) -> None:
    """LeaseLost, and the run is not there (L1)."""
    worker = await kit.worker()
    await kit.store.bury(worker, dead=True)
    assert isinstance(await error_of(kit.store.create(new("r"), worker=worker)), LeaseLost)
    assert await kit.store.run("r") is None


async def an_unknown_id_is_none(kit: Kit) -> None:
    """`run` answers None, also for an odd id."""
    await kit.queued("r")
    assert await kit.store.run("R") is None
    assert await kit.store.run("") is None
    assert await kit.store.run("r' OR 1=1 --") is None


async def ids_are_any_text(kit: Kit) -> None:
    """Quotes, wildcards, NUL-free oddities and other scripts name runs of their own."""
    ids = ["a'b", 'a"b', "a%b", "a_b", "a b", "日本", "a\nb", "💥", "x" * 256]
    for run_id in ids:
        await kit.queued(run_id)
    assert [(await kit.row(run_id)).id for run_id in ids] == ids


async def long_inputs_come_back_whole(kit: Kit) -> None:
    """From nothing to a megabyte."""
    for size in (0, 1, 1_024, 1_025, 5_000, 1_000_000):
        await kit.queued(f"r{size}", input=b"i" * size)
        assert (await kit.row(f"r{size}")).input == b"i" * size


async def the_result_is_kept(kit: Kit) -> None:
    """Status, result and the end of holding are one commit with the last record."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    change = RunChange(Status.COMPLETED, result=b"42", code="v1", release=True)
    assert await kit.write(worker, run, begun(), ended(), change=change) is Verdict.DONE
    row = await kit.row("r")
    assert (row.status, row.result, row.error, row.worker, row.code, row.seq) == (
        "completed",
        b"42",
        None,
        None,
        "v1",
        2,
    )


async def the_error_is_kept(kit: Kit) -> None:
    """All of it, to be raised the same way later."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    error = ErrorData("ValueError", "no", "trace", b"data", b"args", "step", 7)
    change = RunChange(Status.FAILED, error=error, release=True)
    await kit.write(worker, run, begun(), ended(), change=change)
    assert (await kit.row("r")).error == error


async def an_empty_result_is_not_no_result(kit: Kit) -> None:
    """b"" comes back as b""."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.write(worker, run, begun(), change=RunChange(Status.COMPLETED, result=b"", release=True))
    assert (await kit.row("r")).result == b""


async def the_code_is_kept_until_another_is_given(kit: Kit) -> None:
    """`code=None` leaves it as it is."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.write(worker, run, begun(), change=RunChange(Status.RUNNING, code="v1"))
    await kit.write(worker, run, executed(1), seq=2, change=RunChange(Status.RUNNING))
    assert (await kit.row("r")).code == "v1"


async def the_journal_is_read_in_order(kit: Kit) -> None:
    """Byte for byte, and from any record on."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    records = [begun(), *(executed(n) for n in range(1, 40))]
    for n, record in enumerate(records, 1):
        await kit.write(worker, run, record, seq=n)
    assert await kit.store.journal(run.num) == records
    assert await kit.store.journal(run.num, after=30) == records[30:]
    assert await kit.store.journal(run.num, after=40) == []
    assert await kit.store.journal(run.num + 1) == []


async def the_latest_pulse_of_each_step_is_kept(kit: Kit) -> None:
    """With its time; details may be missing."""
    worker = await kit.worker()
    run = await kit.held("r", worker)
    await kit.write(worker, run, begun(), pulses=[Pulse(1, b"first"), Pulse(2, None)])
    kit.world.advance(5)
    await kit.write(worker, run, seq=2, pulses=[Pulse(1, b"second")])
    assert await kit.store.pulses(run.num) == {1: (kit.world.time, b"second"), 2: (kit.world.time - 5, None)}


PROMISES: Final = (
    a_new_run_is_reported_as_new,
    the_same_id_again_gives_the_run_that_is_there,
    the_same_id_again_does_not_take_a_held_run,
    the_same_id_again_does_not_claim_a_free_run,
    creating_with_a_worker_claims_in_the_same_transaction,
    a_delayed_run_is_not_claimed_by_its_creator,
    a_buried_worker_creates_no_run_for_itself,
    an_unknown_id_is_none,
    ids_are_any_text,
    long_inputs_come_back_whole,
    the_result_is_kept,
    the_error_is_kept,
    an_empty_result_is_not_no_result,
    the_code_is_kept_until_another_is_given,
    the_journal_is_read_in_order,
    the_latest_pulse_of_each_step_is_kept,
)
