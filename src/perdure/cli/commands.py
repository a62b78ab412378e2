"""The commands, their arguments and options. A command only says what is to be done; main.py does it, outside the parser.

Nothing but the parser is imported here, so that `--help` is quick.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import typer

from perdure.cli.settings import Common

Task: TypeAlias = Callable[[], int]

Store: TypeAlias = Annotated[str | None, typer.Option("--store", metavar="URL", help="Where runs are kept. Else PERDURE_STORE, perdure.toml, perdure.db.", show_default=False)]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object, or one per line for lists.")]
Verbose: TypeAlias = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
RunId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="A run's id, or the beginning of it.", show_default=False)]
RunIds: TypeAlias = Annotated[list[str], typer.Argument(metavar="ID…", help="Runs' ids, or the beginnings of them.", show_default=False)]
Seconds: TypeAlias = float | None
LeaseTtl: TypeAlias = Annotated[Seconds, typer.Option("--lease-ttl-s", metavar="S", help="How long a silent worker keeps its runs. Else PERDURE_LEASE_TTL_S, 30.", show_default=False)]
Grace: TypeAlias = Annotated[Seconds, typer.Option("--grace-s", metavar="S", help="How long steps may still take after a signal. Else PERDURE_GRACE_S, 30.", show_default=False)]
ExitWhenIdle: TypeAlias = Annotated[bool, typer.Option("--exit-when-idle", help="Leave when nothing runs and nothing is due soon.")]

NOT_YET: Final = frozenset(
    "logs top watch send answer inbox fork export import replay check crashtest serve monitor copy doctor prune".split()
)

EXIT_CODES: Final = (
    "Exit codes: 0 ok, 1 the run failed, 2 usage, 3 not found, 4 conflict, 5 store unreachable, 6 waits for a person, "
    "7 cancelled, 8 diverged, 124 timeout, 130 interrupted."
)

app = typer.Typer(
    name="perdure",
    help="Plain asyncio that survives kill -9: run agents, look at them, steer them.",
    add_completion=True,
    epilog=EXIT_CODES,
    rich_markup_mode=None,  # its markup and its tables cost 40 ms at every start
    pretty_exceptions_enable=False,
    suggest_commands=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def everywhere(
    ctx: typer.Context,
    store: Store = None,
    as_json: Json = False,
    verbose: Verbose = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        from perdure import __version__

        print(f"perdure {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())
    ctx.obj = Common(store, as_json, verbose)


def _common(ctx: typer.Context, store: str | None, as_json: bool, verbose: bool = False) -> Common:  # noqa: FBT001, FBT002  # as given
    """Options may stand before the command or after it."""
    before: Common = ctx.obj
    return Common(store or before.store, as_json or before.json, verbose or before.verbose)


@app.command()
def run(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="MODULE:AGENT", help="A dotted module or a .py file, and the agent in it.", show_default=False)],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[JSON | NAME=JSON]…", help="The agent's arguments.", show_default=False)] = None,
    id: Annotated[str | None, typer.Option("--id", help="The run's id. If it is there already: attach to it.", show_default=False)] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Record the run, print its id, leave it to a worker.")] = False,
    exit_when_idle: Annotated[bool, typer.Option("--exit-when-idle", help="Do not wait for people (exit 6) or for long timers.")] = False,
    queue: Annotated[str, typer.Option("--queue", help="The run's queue.")] = "default",
    priority: Annotated[int, typer.Option("--priority", help="Higher goes first.")] = 0,
    delay: Annotated[float, typer.Option("--delay", metavar="S", help="Start only after so many seconds.")] = 0.0,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="NAME=VALUE", help="May be given several times.", show_default=False)] = None,
    timeout: Annotated[Seconds, typer.Option("--timeout", metavar="S", help="Stop waiting after so many seconds (exit 124).", show_default=False)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    lease_ttl_s: LeaseTtl = None,
    grace_s: Grace = None,
    store: Store = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> Task:
    """Run an agent here: progress on stderr, the result as JSON on stdout."""
    from perdure.cli.running import RunOptions
    from perdure.cli.running import run as act

    options = RunOptions(
        id=id, queue=queue, priority=priority, delay=delay, tags=tag or [], exit_when_idle=exit_when_idle, timeout=timeout, quiet=quiet
    )  # fmt: skip
    return partial(act, _common(ctx, store, as_json, verbose), target, arguments or [], options, detach=detach, lease_ttl_s=lease_ttl_s, grace_s=grace_s)


@app.command()
def worker(
    ctx: typer.Context,
    modules: Annotated[list[str], typer.Argument(metavar="MODULE…", help="Dotted modules or .py files.", show_default=False)],
    exit_when_idle: ExitWhenIdle = False,
    lease_ttl_s: LeaseTtl = None,
    grace_s: Grace = None,
    store: Store = None,
    verbose: Verbose = False,
) -> Task:
    """Serve every agent of the modules; first recover what was left."""
    from perdure.cli.serving import worker as act

    return partial(act, _common(ctx, store, False, verbose), modules, exit_when_idle=exit_when_idle, lease_ttl_s=lease_ttl_s, grace_s=grace_s)


@app.command()
def ps(
    ctx: typer.Context,
    status: Annotated[list[str] | None, typer.Option("--status", help="Only runs of this status; may be given several times.", show_default=False)] = None,
    agent: Annotated[list[str] | None, typer.Option("--agent", help="Only runs of this agent; may be given several times.", show_default=False)] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only runs of this queue.", show_default=False)] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="At most so many, newest first; 0: all. Else 100, with --json all.", show_default=False)] = None,
    store: Store = None,
    as_json: Json = False,
) -> Task:
    """List runs, newest first."""
    from perdure.cli.looking import ps as act

    return partial(act, _common(ctx, store, as_json), status=status or [], agent=agent or [], queue=queue, limit=limit)


@app.command()
def show(ctx: typer.Context, id: RunId, store: Store = None, as_json: Json = False) -> Task:
    """Show one run, and what can be done about it."""
    from perdure.cli.looking import show as act

    return partial(act, _common(ctx, store, as_json), id)


@app.command()
def history(
    ctx: typer.Context,
    id: RunId,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="Only the last so many; 0: all. Else 200, with --json all.", show_default=False)] = None,
    store: Store = None,
    as_json: Json = False,
) -> Task:
    """Show what a run did: steps, timers, waits, control."""
    from perdure.cli.looking import history as act

    return partial(act, _common(ctx, store, as_json), id, limit=limit)


def _steer(word: str, help: str) -> None:
    def command(ctx: typer.Context, ids: RunIds, store: Store = None, as_json: Json = False) -> Task:
        from perdure.cli.steering import steer

        return partial(steer, _common(ctx, store, as_json), ids, word)

    app.command(word, help=help)(command)


_steer("pause", "Let runs stand still: what runs now is finished, nothing new starts.")


@app.command()
def resume(
    ctx: typer.Context,
    ids: RunIds,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="The agent reads it as run.note.", show_default=False)] = None,
    store: Store = None,
    as_json: Json = False,
) -> Task:
    """Let paused or parked runs go on."""
    from perdure.cli.steering import steer

    return partial(steer, _common(ctx, store, as_json), ids, "resume", note=note)


_steer("cancel", "Cancel runs: their code sees it and may clean up.")
_steer("retry", "Let failed or cancelled runs go on from the failed step.")


@app.command()
def kill(
    ctx: typer.Context,
    ids: RunIds,
    signal: Annotated[str, typer.Option("--signal", "-s", metavar="SIGNAL", help="Also -TERM (cancel), -KILL (end at once), -STOP (pause), -CONT (resume), -INT (cancel the step).")] = "TERM",
    store: Store = None,
    as_json: Json = False,
) -> Task:
    """Signal runs, as kill does processes: kill [-TERM|-KILL|-STOP|-CONT|-INT] ID…"""
    from perdure.cli.steering import kill as act

    return partial(act, _common(ctx, store, as_json), ids, signal)


@app.command()
def resolve(
    ctx: typer.Context,
    id: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step's position, or its name.", show_default=False)],
    done: Annotated[str | None, typer.Option("--done", metavar="JSON", help="It happened, with this result.", show_default=False)] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Do it again.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="It failed.")] = False,
    store: Store = None,
    as_json: Json = False,
) -> Task:
    """Decide about a step in doubt."""
    from perdure.cli.steering import resolve as act

    return partial(act, _common(ctx, store, as_json), id, step, done=done, retry=retry, fail=fail)


def has_demo() -> bool:
    return importlib.util.find_spec("perdure.cli.demo") is not None


def add_demo(*, wanted: bool) -> None:
    """Its own module is imported only if it is called."""
    if wanted:
        from perdure.cli import demo  # type: ignore[attr-defined]  # pyright: ignore  # it may not be there

        shown: Any = demo
        app.command("demo")(shown.demo)
    else:
        app.command("demo", help="See a run survive three kills, in a minute.")(lambda: None)
