"""The commands. Each only says what is to be done; main.py does it, outside the parser.

Nothing but the parser is imported before a command is chosen, so that `--help` is quick.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import typer

from perdure.cli import options as o
from perdure.cli.lean import HELP_NAMES
from perdure.cli.settings import Common

Task: TypeAlias = Callable[[], int]

NOT_YET: Final = frozenset(
    (
        *("logs", "top", "watch", "send", "answer", "inbox", "fork", "export", "import", "replay"),
        *("check", "crashtest", "serve", "monitor", "copy", "doctor", "prune"),
    )
)
"""Commands of the face that a later version brings."""

EXIT_CODES: Final = (
    "Exit codes: 0 ok, 1 the run failed, 2 usage, 3 not found, 4 conflict, 5 store unreachable, 6 waits for a person, "
    "7 cancelled, 8 diverged, 124 timeout, 130 interrupted."
)

app = typer.Typer(
    name="perdure",
    help="Plain asyncio that survives kill -9: run agents, look at them, steer them.",
    epilog=EXIT_CODES,
    rich_markup_mode=None,  # rich's markup and panels cost 40 ms at every start
    pretty_exceptions_enable=False,
    suggest_commands=False,  # main.py does, with the commands that are still to come
    context_settings={"help_option_names": HELP_NAMES},
)


@app.callback(invoke_without_command=True)
def everywhere(
    ctx: typer.Context,
    *,
    store: o.Store = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
    version: o.Version = False,
) -> None:
    if version:
        from perdure import __version__

        print(f"perdure {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())
    ctx.obj = Common(store, json=as_json, verbose=verbose)


def _common(ctx: typer.Context, store: str | None, *, as_json: bool = False, verbose: bool = False) -> Common:
    """Options may stand before the command or after it."""
    before: Common = ctx.obj
    return Common(store or before.store, json=as_json or before.json, verbose=verbose or before.verbose)


@app.command()
def run(
    ctx: typer.Context,
    target: o.Target,
    arguments: o.Arguments = None,
    *,
    id: o.Id = None,
    detach: o.Detach = False,
    exit_when_idle: o.IdleRun = False,
    queue: o.Queue = "default",
    priority: o.Priority = 0,
    delay: o.Delay = 0.0,
    tag: o.Tags = None,
    timeout: o.Timeout = None,
    quiet: o.Quiet = False,
    lease_ttl_s: o.LeaseTtl = None,
    grace_s: o.Grace = None,
    store: o.Store = None,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> Task:
    """Run an agent here: progress on stderr, result on stdout."""
    from perdure.cli.plan import RunOptions
    from perdure.cli.running import run as act

    options = RunOptions(
        id=id,
        queue=queue,
        priority=priority,
        delay=delay,
        tags=tag or [],
        exit_when_idle=exit_when_idle,
        timeout=timeout,
        quiet=quiet,
        detach=detach,
        lease_ttl_s=lease_ttl_s,
        grace_s=grace_s,
    )
    return partial(act, _common(ctx, store, as_json=as_json, verbose=verbose), target, arguments or [], options)


@app.command()
def worker(
    ctx: typer.Context,
    modules: o.Modules,
    *,
    exit_when_idle: o.IdleWorker = False,
    lease_ttl_s: o.LeaseTtl = None,
    grace_s: o.Grace = None,
    store: o.Store = None,
    verbose: o.Verbose = False,
) -> Task:
    """Serve all agents of modules; first recover what was left."""
    from perdure.cli.serving import worker as act

    common = _common(ctx, store, verbose=verbose)
    return partial(act, common, modules, exit_when_idle=exit_when_idle, lease_ttl_s=lease_ttl_s, grace_s=grace_s)


@app.command()
def ps(
    ctx: typer.Context,
    *,
    status: o.OfStatus = None,
    agent: o.OfAgent = None,
    queue: o.OfQueue = None,
    limit: o.LimitRuns = None,
    store: o.Store = None,
    as_json: o.Json = False,
) -> Task:
    """List runs, newest first."""
    from perdure.cli.looking import ps as act

    common = _common(ctx, store, as_json=as_json)
    return partial(act, common, status=status or [], agent=agent or [], queue=queue, limit=limit)


@app.command()
def show(ctx: typer.Context, id: o.RunId, *, store: o.Store = None, as_json: o.Json = False) -> Task:
    """Show one run, and what can be done about it."""
    from perdure.cli.looking import show as act

    return partial(act, _common(ctx, store, as_json=as_json), id)


@app.command()
def history(
    ctx: typer.Context, id: o.RunId, *, limit: o.LimitEntries = None, store: o.Store = None, as_json: o.Json = False
) -> Task:
    """Show what a run did: steps, timers, waits, control."""
    from perdure.cli.looking import history as act

    return partial(act, _common(ctx, store, as_json=as_json), id, limit=limit)


def _steering(word: str, help: str) -> None:
    def command(ctx: typer.Context, ids: o.RunIds, *, store: o.Store = None, as_json: o.Json = False) -> Task:
        from perdure.cli.steering import steer

        return partial(steer, _common(ctx, store, as_json=as_json), ids, word)

    app.command(word, help=help)(command)


_steering("pause", "Let runs stand still once their steps are done.")


@app.command()
def resume(
    ctx: typer.Context, ids: o.RunIds, *, note: o.Note = None, store: o.Store = None, as_json: o.Json = False
) -> Task:
    """Let paused or parked runs go on."""
    from perdure.cli.steering import steer

    return partial(steer, _common(ctx, store, as_json=as_json), ids, "resume", note=note)


_steering("cancel", "Cancel runs; their code may clean up.")
_steering("retry", "Let failed runs go on from the failed step.")


@app.command()
def kill(
    ctx: typer.Context, ids: o.RunIds, *, signal: o.Signal = "TERM", store: o.Store = None, as_json: o.Json = False
) -> Task:
    """Signal runs: -TERM, -KILL, -STOP, -CONT or -INT."""
    from perdure.cli.steering import kill as act

    return partial(act, _common(ctx, store, as_json=as_json), ids, signal)


@app.command()
def resolve(
    ctx: typer.Context,
    id: o.RunId,
    step: o.Step,
    *,
    done: o.Done = None,
    retry: o.Again = False,
    fail: o.Fail = False,
    store: o.Store = None,
    as_json: o.Json = False,
) -> Task:
    """Decide about a step in doubt."""
    from perdure.cli.steering import resolve as act

    return partial(act, _common(ctx, store, as_json=as_json), id, step, done=done, retry=retry, fail=fail)


def has_demo() -> bool:
    return importlib.util.find_spec("perdure.cli.demo") is not None


def add_demo(*, wanted: bool) -> None:
    """Its own module is imported only if it is called."""
    if wanted:
        from perdure.cli.demo import demo

        app.command("demo")(demo)
    else:
        app.command("demo", help="See a run survive three kills.")(lambda: None)
