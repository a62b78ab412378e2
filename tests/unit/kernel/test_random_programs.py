"""Programs that a machine wrote: whatever they combine, they do what plain asyncio does, and the same again from
every prefix."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.unit.kernel.conftest import load, plain

from perdure import agent
from perdure.testing.replay import Script, play, replay_prefixes

primitives = load("primitive_agents")
Log = primitives.Log


class Writer:
    """Writes a program as nested lists. Durations are odd numbers, so that no two things happen at the same moment."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tags = 0

    def seconds(self, scale: float = 1.0) -> float:
        return round(scale * self.random.uniform(0.01, 3.0), 7)

    def tag(self) -> str:
        self.tags += 1
        return f"t{self.tags}"

    def node(self, depth: int) -> list[Any]:
        leaves = ["work", "work", "work", "look", "sleep", "fail"]
        inner = [
            "seq",
            "seq",
            "gather",
            "safe_gather",
            "group",
            "timeout",
            "wait_for",
            "shield",
            "try",
            "catch",
            "first",
            "completed",
            "cancel",
        ]
        kind = self.random.choice(leaves if depth <= 0 or self.random.random() < 0.2 else inner)
        match kind:
            case "work" | "look" | "fail":
                return [kind, self.tag(), self.seconds()]
            case "sleep":
                return [kind, self.seconds()]
            case "seq" | "gather" | "safe_gather" | "group" | "first" | "completed":
                return [kind, [self.node(depth - 1) for _ in range(self.random.randint(1, 3))]]
            case "timeout" | "wait_for" | "cancel":
                return [kind, self.seconds(1.5), self.node(depth - 1)]
            case "shield":
                return [kind, self.node(depth - 1)]
            case _:
                return [kind, self.node(depth - 1), self.node(depth - 2)]


async def execute(log: Any, node: list[Any]) -> None:
    kind, *rest = node
    match kind:
        case "work" | "look" | "fail":
            log(await getattr(primitives, kind)(*rest))
        case "sleep":
            await asyncio.sleep(*rest)
        case "seq":
            for part in rest[0]:
                await execute(log, part)
        case "gather" | "safe_gather":
            given = await asyncio.gather(*(execute(log, part) for part in rest[0]), return_exceptions=kind != "gather")
            log([type(value).__name__ for value in given])
        case "group":
            async with asyncio.TaskGroup() as group:
                for part in rest[0]:
                    group.create_task(execute(log, part))
                    await primitives.look("in the body", 0.0123)
        case "timeout":
            async with asyncio.timeout(rest[0]):
                await execute(log, rest[1])
        case "wait_for":
            await asyncio.wait_for(execute(log, rest[1]), rest[0])
        case "shield":
            await asyncio.shield(execute(log, rest[0]))
        case "try":
            try:
                await execute(log, rest[0])
            finally:
                log("finally")
                await execute(log, rest[1])
        case "catch":
            try:
                await execute(log, rest[0])
            except Exception as exc:
                log("caught", type(exc).__name__)
                await execute(log, rest[1])
        case _:
            await execute_more(log, kind, rest)


async def execute_more(log: Any, kind: str, rest: list[Any]) -> None:
    match kind:
        case "first":
            tasks = [asyncio.create_task(execute(log, part)) for part in rest[0]]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            log(len(done), len(pending))
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        case "completed":
            tasks = [asyncio.create_task(execute(log, part)) for part in rest[0]]
            for number, done in enumerate(asyncio.as_completed(tasks)):
                await done
                log("completed", number)
        case "cancel":
            task = asyncio.create_task(execute(log, rest[1]))
            asyncio.get_running_loop().call_later(rest[0], task.cancel)
            await asyncio.wait([task])
            log("cancelled", task.cancelled())


@agent
async def random_program(program: list[Any]) -> str:
    log = Log()
    try:
        await execute(log, program)
    finally:
        seen[:] = log  # What its leftover tasks do at the end, plain asyncio does in the order of their addresses.
    return "done"


seen: list[Any] = []


def patient(program: Any) -> Any:
    """Steps that are stopped together end one after the other, because each end is a record: a plain `gather`
    leaves at the first."""
    if isinstance(program, list):
        return [patient(part) for part in program]
    return "safe_gather" if program == "gather" else program


def kind_of(result: Any) -> str:
    """Of an error its type: what asyncio says about it names objects by their addresses."""
    return str(result).partition(":")[0]


@pytest.mark.parametrize("block", range(6))
def test_a_random_program_does_what_plain_asyncio_does(block: int, caplog: pytest.LogCaptureFixture) -> None:
    """Status, result, what is logged and when: as on a plain loop, also cancelled at a random moment; and from
    every prefix."""
    caplog.set_level("CRITICAL", "perdure.agent")  # Like asyncio it tells of errors that nobody fetched.
    for seed in range(block * 30, block * 30 + 30):
        writer = Writer(seed)
        program = ["catch", writer.node(4), ["work", "after", 0.1]]
        for after_s in (None, writer.seconds(2.0)):
            if after_s is not None:
                program = patient(program)
            seen.clear()
            theirs = plain(random_program, program, cancel_after_s=after_s)
            their_log = sorted(map(repr, seen))
            script = Script(
                steps=primitives.SCRIPTED, order="timed", seconds=primitives.seconds_of, cancel_after_s=after_s
            )
            seen.clear()
            whole = play(random_program, program, script=script)
            where = f"seed {seed}, cancelled after {after_s}: {program}"
            assert (whole.status, kind_of(whole.result)) == (theirs[0], kind_of(theirs[1])), where
            assert sorted(map(repr, seen)) == their_log, where
            replay_prefixes(random_program, program, whole=whole, script=script)


@pytest.mark.parametrize("block", range(3))
def test_a_random_program_replays_in_any_order_of_arrival(block: int, caplog: pytest.LogCaptureFixture) -> None:
    """Results, timers and a cancellation in random order, with effects that cannot be stopped: every prefix ends
    the same."""
    caplog.set_level("CRITICAL", "perdure.agent")
    for seed in range(1_000 + block * 20, 1_000 + block * 20 + 20):
        writer = Writer(seed)
        program = writer.node(4)
        for stopped, cancel_at in (("done", None), ("done", 1 + seed % 9), ("cancelled", 1 + seed % 7)):
            script = Script(
                steps=primitives.SCRIPTED,
                order="random",
                timers="mixed",
                seed=seed,
                stopped=stopped,
                cancel_at=cancel_at,
            )
            whole = play(random_program, program, script=script)
            assert whole.ended is not None, program
            replay_prefixes(random_program, program, whole=whole, script=script)
