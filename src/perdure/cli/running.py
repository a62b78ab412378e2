"""`run`: start or attach to one run, execute it here until it ends, print its result.

R1. The result is the only thing on stdout.
R2. Leaving early never loses anything: the run is handed back, and the way to go on is said.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any, Final

from perdure.api import checks
from perdure.api.app import Perdure
from perdure.api.views import run_view
from perdure.base.status import ENDED, Status
from perdure.base.world import RealWorld
from perdure.cli import arguments, client, failures, loading, output, settings
from perdure.cli.logs import log_to_stderr
from perdure.cli.plan import Plan, RunOptions
from perdure.cli.progress import Progress
from perdure.cli.reporting import HORIZON_S, left, report
from perdure.cli.settings import Common
from perdure.cli.stopping import Stop, stop_signals, until_failure
from perdure.errors import Conflict, UsageError
from perdure.kernel.spec import input_of
from perdure.store.contract import RunRow

_WATCH_S: Final = 0.1


def run(common: Common, target: str, words: list[str], options: RunOptions) -> int:
    _check(options)
    chosen = settings.read(common, lease_ttl_s=options.lease_ttl_s, grace_s=options.grace_s)
    tags = _tags(options.tags)
    output.keep_stdout()
    log_to_stderr(verbose=common.verbose, least=logging.WARNING)
    agent = loading.load_agent(target)
    call = arguments.bind(agent, words) if words or options.id is None else None
    plan = Plan(target, agent, call, options, chosen, common, tags)
    return client.execute(_detach(plan) if options.detach else _run(plan), fast=not options.detach)


def _check(options: RunOptions) -> None:
    """Before users' code is loaded and a store is made."""
    if checks.delay(options.delay) < 0:
        raise UsageError(f"--delay {options.delay:g} is below 0. Use a number of seconds")
    if options.timeout is not None and not 0 < options.timeout < math.inf:
        raise UsageError(f"--timeout {options.timeout:g} is no time to wait. Use a number of seconds over 0")
    checks.priority(options.priority)
    checks.queue(options.queue)
    if options.id is not None:
        checks.run_id(options.id)


def _tags(words: list[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for word in words:
        name, mark, value = word.partition("=")
        if not name or not mark:
            raise UsageError(f"--tag {word!r}: write --tag NAME=VALUE")
        tags[name] = value
    return checks.tags(tags)


async def _detach(plan: Plan) -> int:
    async with Perdure(plan.settings.store, worker=False) as app:
        run_id = plan.options.id or app.world.name()
        if await _known(app, plan) is None:
            await _start(app, plan, run_id)
        row = await app.store_run(run_id)
        assert row is not None, "it is durable when start returns"
        if plan.common.json:
            output.emit(run_view(row, app.world.now()).to_dict())
        else:
            output.line(run_id)
    return failures.OK


async def _start(app: Perdure, plan: Plan, run_id: str) -> None:
    call = plan.call or arguments.bind(plan.agent, [])
    options = plan.options
    await app.start(
        plan.agent,
        *call.args,
        id=run_id,
        queue=options.queue,
        priority=options.priority,
        delay=options.delay,
        tags=plan.tags,
        **call.kwargs,
    )


async def _known(app: Perdure, plan: Plan) -> RunRow | None:
    """The run that is there already under the wanted id; `Conflict` if it is not the one that is meant."""
    if plan.options.id is None:
        return None
    row = await app.store_run(plan.options.id)
    if row is None:
        return None
    if row.agent != plan.agent.name:
        raise Conflict(
            f"run {row.id!r} is there already and belongs to agent {row.agent!r}, not {plan.agent.name!r}. "
            f"Choose another --id, or `{plan.settings.prefix} show {row.id}`"
        )
    if plan.call is not None and row.input != input_of(plan.call.args, plan.call.kwargs):
        raise Conflict(
            f"run {row.id!r} is there already with other arguments. "
            "Choose another --id, or leave the arguments out to attach to it"
        )
    return row


async def _run(plan: Plan) -> int:
    known: RunRow | None = None
    if plan.options.id is not None:
        # Looked at without a worker first: a worker would at once take up a run that is not meant.
        async with Perdure(plan.settings.store, worker=False) as app:
            known = await _known(app, plan)
        if known is not None and known.status in ENDED:
            return report(known, plan)
        if known is None and plan.call is None:
            arguments.bind(plan.agent, [])
    run_id = plan.options.id or RealWorld().name()
    with stop_signals() as stop:
        code = await _execute(plan, stop, run_id, known)
        if code is not None:
            return code
        async with Perdure(plan.settings.store, worker=False) as app:
            row = await app.store_run(run_id)
        assert row is not None, "a run is never deleted"
        return left(row, plan, stop)


async def _execute(plan: Plan, stop: Stop, run_id: str, known: RunRow | None) -> int | None:
    """The exit code, or None if the work was left before the run's end."""
    chosen = plan.settings
    app = Perdure(chosen.store, lease_ttl_s=chosen.lease_ttl_s, grace_s=chosen.grace_s, only=run_id)
    async with app:
        with Progress(app, run_id, quiet=plan.options.quiet, hint=chosen.prefix) as progress:
            if known is None:
                await _start(app, plan, run_id)
                if plan.options.id is None and not plan.options.quiet:
                    output.note(f"run {run_id}")
            else:
                await progress.begin(known)
            row = await _until_over(app, run_id, plan, stop, progress)
            if row is not None:
                await progress.look()
        if row is not None:
            return report(row, plan)
        if not plan.options.quiet and app.worker is not None and app.worker.running:
            output.note(f"stopping: what runs is finished, for at most {chosen.grace_s:g} s; once more stops at once")
        await app.close(grace_s=chosen.grace_s)
    return None


async def _until_over(app: Perdure, run_id: str, plan: Plan, stop: Stop, progress: Progress) -> RunRow | None:
    """The row of a run that has ended or goes no further here; None if it was time to stop first."""
    spawn = asyncio.create_task
    over: set[asyncio.Task[Any]] = {spawn(app.wait_for_end(run_id))}
    if plan.options.exit_when_idle:
        over.add(spawn(_until_idle(app, run_id)))
    watchers: set[asyncio.Task[Any]] = {
        spawn(stop.asked.wait()),
        spawn(until_failure(app.worker)),
        spawn(progress.follow()),
    }
    try:
        done, _ = await asyncio.wait(over | watchers, timeout=plan.options.timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done & watchers:
            task.result()  # a failure of the worker or of the store
        return next((task.result() for task in done & over), None)
    finally:
        for task in over | watchers:
            task.cancel()
        await asyncio.gather(*over, *watchers, return_exceptions=True)


async def _until_idle(app: Perdure, run_id: str) -> RunRow:
    """Its row once nothing brings it on within the horizon, here or in another worker."""
    assert app.worker is not None
    while True:
        await app.worker.wait_idle(HORIZON_S)
        row = await app.store_run(run_id)
        assert row is not None, "a run is never deleted"
        if row.worker is None and row.status is not Status.RUNNING:
            return row
        await asyncio.sleep(_WATCH_S)
