"""`run`: start or attach to one run, execute it here until it ends, print its result.

R1. The result is the only thing on stdout.
R2. Leaving early never loses anything: the run is handed back, and the way to go on is said.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.api.app import Perdure
from perdure.api.handle import parked_message
from perdure.api.views import run_view
from perdure.base import codec
from perdure.base.status import ENDED, Status
from perdure.base.world import RealWorld
from perdure.cli import arguments, client, failures, loading, output, settings
from perdure.cli.arguments import Call
from perdure.cli.progress import Progress
from perdure.cli.settings import Common, Settings
from perdure.cli.stopping import Stop, leave_soon, stop_signals
from perdure.errors import Conflict, UsageError
from perdure.kernel.spec import AgentSpec
from perdure.store.contract import RunRow

HORIZON_S: Final = 15.0
_WATCH_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    id: str | None
    queue: str
    priority: int
    delay: float
    tags: list[str]
    exit_when_idle: bool
    timeout: float | None
    quiet: bool


@dataclass(frozen=True, slots=True)
class Plan:
    target: str
    agent: AgentSpec
    call: Call | None  # None: no arguments were given, so an existing run is taken as it is
    options: RunOptions
    settings: Settings
    common: Common
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def again(self) -> str:
        return f"{self.settings.prefix} run {self.target} --id"


def run(common: Common, target: str, words: list[str], options: RunOptions, *, detach: bool, lease_ttl_s: float | None, grace_s: float | None) -> int:
    if options.delay < 0 or (options.timeout is not None and options.timeout <= 0):
        raise UsageError("--delay and --timeout are numbers of seconds, and not negative")
    chosen = settings.read(common, lease_ttl_s=lease_ttl_s, grace_s=grace_s)
    output.keep_stdout()
    agent = loading.load_agent(target)
    call = arguments.bind(agent, words) if words or options.id is None else None
    plan = Plan(target, agent, call, options, chosen, common, _tags(options.tags))
    code = client.execute(_detach(plan) if detach else _run(plan), fast=not detach)
    leave_soon(code)
    return code


def _tags(words: list[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for word in words:
        name, mark, value = word.partition("=")
        if not name or not mark:
            raise UsageError(f"--tag {word!r}: write --tag NAME=VALUE")
        tags[name] = value
    return tags


async def _detach(plan: Plan) -> int:
    async with Perdure(plan.settings.store, worker=False) as app:
        id = plan.options.id or app.world.name()
        if await _known(app, plan) is None:
            await _start(app, plan, id)
        row = await app.store_run(id)
        assert row is not None, "it is durable when start returns"
        if plan.common.json:
            output.emit(run_view(row, app.world.now()).to_dict())
        else:
            output.line(id)
    return failures.OK


async def _start(app: Perdure, plan: Plan, id: str) -> None:
    call = plan.call or arguments.bind(plan.agent, [])
    options = plan.options
    await app.start(plan.agent, *call.args, id=id, queue=options.queue, priority=options.priority, delay=options.delay, tags=plan.tags, **call.kwargs)


async def _known(app: Perdure, plan: Plan) -> RunRow | None:
    """The run that is there already under the wanted id; `Conflict` if it is not the one that is meant."""
    if plan.options.id is None:
        return None
    row = await app.store_run(plan.options.id)
    if row is None:
        return None
    if row.agent != plan.agent.name:
        raise Conflict(f"run {row.id!r} is there already and belongs to agent {row.agent!r}, not {plan.agent.name!r}. Choose another --id, or `{plan.settings.prefix} show {row.id}`")
    if plan.call is not None and row.input != codec.encode([list(plan.call.args), plan.call.kwargs]):
        raise Conflict(f"run {row.id!r} is there already with other arguments. Choose another --id, or leave the arguments out to attach to it")
    return row


async def _run(plan: Plan) -> int:
    known: RunRow | None = None
    if plan.options.id is not None:
        # Looked at without a worker first: a worker would at once take up a run that is not meant.
        async with Perdure(plan.settings.store, worker=False) as app:
            known = await _known(app, plan)
        if known is not None and known.status in ENDED:
            return _report(known, plan)
        if known is None and plan.call is None:
            arguments.bind(plan.agent, [])
    id = plan.options.id or RealWorld().name()
    with stop_signals() as stop:
        code = await _execute(plan, stop, id, known)
        if code is not None:
            return code
        async with Perdure(plan.settings.store, worker=False) as app:
            row = await app.store_run(id)
        assert row is not None, "a run is never deleted"
        return _left(row, plan, stop)


async def _execute(plan: Plan, stop: Stop, id: str, known: RunRow | None) -> int | None:
    """The exit code, or None if the work was left before the run's end."""
    chosen = plan.settings
    app = Perdure(chosen.store, lease_ttl_s=chosen.lease_ttl_s, grace_s=chosen.grace_s, only=id)
    async with app:
        with Progress(app, id, quiet=plan.options.quiet, hint=chosen.prefix) as progress:
            if known is None:
                await _start(app, plan, id)
                if plan.options.id is None and not plan.options.quiet:
                    output.note(f"run {id}")
            else:
                await progress.begin(known)
            row = await _until_over(app, id, plan, stop, progress)
            if row is not None:
                await progress.look()
        if row is not None:
            return _report(row, plan)
        if not plan.options.quiet:
            output.note(f"stopping: the steps that run are finished, for at most {chosen.grace_s:g} s; once more stops at once")
        await app.close(grace_s=chosen.grace_s)
    return None


async def _until_over(app: Perdure, id: str, plan: Plan, stop: Stop, progress: Progress) -> RunRow | None:
    """The row of a run that has ended or goes no further here; None if it was time to stop first."""
    spawn = asyncio.create_task
    over: set[asyncio.Task[Any]] = {spawn(app.wait_for_end(id))}
    if plan.options.exit_when_idle:
        over.add(spawn(_until_idle(app, id)))
    watchers: set[asyncio.Task[Any]] = {spawn(stop.asked.wait()), spawn(_until_failure(app)), spawn(progress.follow())}
    try:
        done, _ = await asyncio.wait(over | watchers, timeout=plan.options.timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done & watchers:
            task.result()  # a failure of the worker or of the store
        return next((task.result() for task in done & over), None)
    finally:
        for task in over | watchers:
            task.cancel()
        await asyncio.gather(*over, *watchers, return_exceptions=True)


async def _until_failure(app: Perdure) -> None:
    while app.worker is None or app.worker.failure is None:
        await asyncio.sleep(_WATCH_S)
    raise app.worker.failure


async def _until_idle(app: Perdure, id: str) -> RunRow:
    """Its row once nothing brings it on within the horizon, here or in another worker."""
    assert app.worker is not None
    while True:
        await app.worker.wait_idle(HORIZON_S)
        row = await app.store_run(id)
        assert row is not None, "a run is never deleted"
        if row.worker is None and row.status is not Status.RUNNING:
            return row
        await asyncio.sleep(_WATCH_S)


def _left(row: RunRow, plan: Plan, stop: Stop) -> int:
    """The worker was closed before the run's end, unless its last step was the end."""
    if row.status in ENDED or row.status is Status.PARKED:
        return _report(row, plan)
    why = "" if stop.signal else f"; --timeout {plan.options.timeout:g} is over"
    failures.say(f"run {row.id} is {row.status}, not ended{why}. {_go_on(row, plan)}")
    return stop.code if stop.signal else failures.TIMEOUT


def _go_on(row: RunRow, plan: Plan) -> str:
    return f"Go on with `{plan.again} {row.id}` or `{plan.settings.prefix} worker {plan.target.rpartition(':')[0] or plan.target}`"


def _report(row: RunRow, plan: Plan) -> int:
    match row.status:
        case Status.COMPLETED:
            output.emit(codec.show(row.result) if row.result is not None else None)
            return failures.OK
        case Status.FAILED:
            error = row.error
            why = f"{error.type}: {error.message}" if error is not None else "no reason is recorded"
            step = f" in step {error.position} {error.step}" if error is not None and error.step else _place(error.traceback if error else "")
            failures.say(output.plain(f"run {row.id} failed{step}: {why}. `{plan.settings.prefix} retry {row.id}` goes on from there, `{plan.settings.prefix} show {row.id}` says more"))
            return failures.RUN_FAILED
        case Status.CANCELLED:
            failures.say(f"run {row.id} was cancelled")
            return failures.CANCELLED
        case Status.PARKED:
            failures.say(output.plain(parked_message(row)))
            return failures.DIVERGED if row.reason == "diverged" else failures.HUMAN
        case Status.PAUSED:
            failures.say(f"run {row.id} is paused. `{plan.settings.prefix} resume {row.id}` lets it go on")
            return failures.HUMAN
        case _ if row.status is Status.WAITING and row.ready_at is None:
            failures.say(f"run {row.id} waits for {row.waiting_on or 'something'}, which only a person can bring. `{plan.settings.prefix} show {row.id}` says more")
            return failures.HUMAN
        case _:
            output.note(f"run {row.id} is {row.status}; nothing is due within {HORIZON_S:g} s. {_go_on(row, plan)}")
            return failures.OK


def _place(trace: str) -> str:
    lines = [text.strip() for text in trace.splitlines() if text.strip().startswith("File ")]
    if not lines:
        return ""
    parts = lines[-1].split('"')
    number = parts[2].partition("line ")[2].partition(",")[0] if len(parts) > 2 else "?"
    return f" at {parts[1]}:{number}" if len(parts) > 1 else ""


