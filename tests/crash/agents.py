"""The agents that the crash tests kill. `target` is the address of a book of the ledger."""

from __future__ import annotations

import asyncio
import os

from perdure import StepError, agent, run, step
from perdure.testing.ledger import Target

QUICK_S = 0.01
TIMEOUT_S = 0.4


@step(effect="read", retries=3, backoff=QUICK_S)
async def choose(target: str) -> int:
    """The decision: another one each time it is taken."""
    return (await Target(target).acall("choose", key=run.key))["number"]


@step
async def note(target: str) -> None:
    await Target(target).acall("note", key=run.key)


@step
async def close(target: str, choice: int) -> None:
    await Target(target).acall("close", choice, key=run.key)


async def act_async(target: str, choice: int):
    return await Target(target).acall("act", choice, key=run.key)


def act_plain(target: str, choice: int):
    return Target(target).call("act", choice, key=run.key)


def act_cpu(target: str, choice: int):
    return Target(target).call("act", choice, key=run.key, pid=os.getppid())


def act_cpu_child(target: str, choice: int):
    """Here a plan that kills the caller kills the step's process, not the worker."""
    return Target(target).call("act", choice, key=run.key)


async def aprobe(target: str, choice: int):
    return await Target(target).ahappened("act", run.key)


def probe(target: str, choice: int):
    return Target(target).happened("act", run.key)


STYLES = {"async": act_async, "plain": act_plain, "cpu": act_cpu, "child": act_cpu_child}
ACTS = {}
for style, act in STYLES.items():
    options = {"name": "act", "backoff": QUICK_S, "cpu": act in (act_cpu, act_cpu_child), "timeout": 30.0}
    ACTS["read", style] = step(effect="read", **options)(act)
    ACTS["idempotent", style] = step(**options)(act)
    ACTS["once", style] = step(effect="once", **options)(act)
    ACTS["probe", style] = step(effect="once", probe=aprobe if style == "async" else probe, **options)(act)
    ACTS["done", style] = step(effect="once", on_doubt="assume_done", **options)(act)
    ACTS["failed", style] = step(effect="once", on_doubt="assume_failed", **options)(act)
    ACTS["steady", style] = step(**options, retries=1)(act)
    ACTS["patient", style] = step(effect="once", **options, retries=5)(act)
    for rule in ("read", "idempotent", "once", "probe"):
        hasty = options | {"timeout": TIMEOUT_S}
        probing = {"probe": probe} if rule == "probe" else {}
        ACTS[rule, f"hasty {style}"] = step(effect="once" if rule == "probe" else rule, **probing, **hasty)(act)


@agent
async def one(target: str, rule: str, style: str):
    """A decision, the effect that it asks for, and a last effect."""
    choice = await choose(target)
    done = await ACTS[rule, style](target, choice)
    await close(target, choice)
    return [choice, done]


@agent
async def noted(target: str, rule: str, style: str):
    """The same with the decision on record before the effect is asked for."""
    choice = await choose(target)
    await note(target)
    done = await ACTS[rule, style](target, choice)
    await close(target, choice)
    return [choice, done]


@agent
async def careful(target: str, rule: str, style: str):
    """The agent goes on when the effect has failed."""
    choice = await choose(target)
    try:
        done = await ACTS[rule, style](target, choice)
    except StepError as failed:
        done = failed.type
    await close(target, choice)
    return [choice, done]


@step(
    effect="once", probe=lambda target, choice: doubtful_probe(target), backoff=QUICK_S, timeout=TIMEOUT_S, name="act"
)
async def doubted(target: str, choice: int):
    return await Target(target).acall("act", choice, key=run.key)


def doubtful_probe(target: str):
    """It answers the third time it is asked; before that the target refuses to say."""
    Target(target).call("asked", key=run.key)
    return Target(target).happened("act", run.key)


@agent
async def doubting(target: str):
    choice = await choose(target)
    done = await doubted(target, choice)
    await close(target, choice)
    return [choice, done]


@agent
async def sleeper(target: str, seconds: float):
    choice = await choose(target)
    await note(target)
    await asyncio.sleep(seconds)
    done = await ACTS["idempotent", "async"](target, choice)
    return [choice, done]


@agent
async def steps(target: str, count: int, rule: str = "idempotent", style: str = "async"):
    """One effect after another."""
    for number in range(count):
        await ACTS[rule, style](target, number)
    return count


@step(effect="read", retries=1000, backoff=QUICK_S)
async def look_up(target: str, number: int) -> int:
    await Target(target).acall("looked", number, key=run.key)
    return number


@step(retries=1000, backoff=QUICK_S)
async def keyed(target: str, number: int) -> int:
    return (await Target(target).acall("keyed", number, key=run.key))["value"]


@step(retries=1000, backoff=QUICK_S)
def keyed_plain(target: str, number: int) -> int:
    return Target(target).call("keyed", number, key=run.key)["value"]


@step(retries=1000, backoff=QUICK_S)
async def keyed_flaky(target: str, number: int) -> int:
    """Fails every other time before it does anything."""
    if run.attempt % 2:
        raise RuntimeError("not yet")
    return (await Target(target).acall("keyed", number, key=run.key))["value"]


@step(effect="once", retries=3, backoff=QUICK_S)
async def sent(target: str, number: int) -> str:
    await Target(target).acall("sent", number, key=run.key)
    return "sent"


@step(
    effect="once",
    probe=lambda target, number: Target(target).happened("probed", run.key),
    retries=1000,
    backoff=QUICK_S,
)
async def probed(target: str, number: int):
    return await Target(target).acall("probed", number, key=run.key)


WANDERER_KEYED = 9
WANDERER_ROUNDS = 3


@agent
async def wanderer(target: str):
    """A bit of everything: concurrent reads, a race with a timer, keyed effects side by side, failures, a `once`, a probe."""
    total = 0
    for number in range(WANDERER_ROUNDS):
        total += sum(await asyncio.gather(*(look_up(target, index) for index in range(3))))
        await asyncio.sleep(run.random.random() / 50)
        racing = asyncio.create_task(keyed(target, number))
        await asyncio.wait({racing}, timeout=0.003)
        total += sum(await asyncio.gather(racing, keyed_plain(target, number), keyed_flaky(target, number)))
        if number == 1:
            await sent(target, number)
            await probed(target, number)
    return total
