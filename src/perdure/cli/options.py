"""Arguments and options as the commands declare them, with their help."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


def _argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None
Number: TypeAlias = float | None
Count: TypeAlias = int | None

# Everywhere
_STORE = "Where runs are kept. Else PERDURE_STORE, perdure.toml, perdure.db."
Store: TypeAlias = Annotated[Text, _option("--store", metavar="URL", help=_STORE)]
Json: TypeAlias = Annotated[bool, _option("--json", help="One JSON object, or one per line for lists.")]
Verbose: TypeAlias = Annotated[bool, _option("--verbose", "-v", help="Say more on stderr.")]
Version: TypeAlias = Annotated[bool, _option("--version", help="Print the version.")]
RunId: TypeAlias = Annotated[str, _argument("ID", "A run's id, or the beginning of it.")]
RunIds: TypeAlias = Annotated[list[str], _argument("ID…", "Runs' ids, or the beginnings of them.")]

# Executing
_LEASE = "How long a silent worker keeps its runs. Else PERDURE_LEASE_TTL_S, 30."
_GRACE = "How long steps may still take after a signal. Else PERDURE_GRACE_S, 30."
_IDLE_RUN = "Do not wait for people (exit 6) or for long timers."
_AGENT = "A dotted module or a .py file, and the agent in it."
Target: TypeAlias = Annotated[str, _argument("MODULE:AGENT", _AGENT)]
Arguments: TypeAlias = Annotated[Texts, _argument("[JSON | NAME=JSON]…", "The agent's arguments.")]
Id: TypeAlias = Annotated[
    Text, _option("--id", metavar="ID", help="The run's id. If it is there already: attach to it.")
]
Detach: TypeAlias = Annotated[
    bool, _option("--detach", "-d", help="Record the run, print its id, leave it to a worker.")
]
IdleRun: TypeAlias = Annotated[bool, _option("--exit-when-idle", help=_IDLE_RUN)]
Queue: TypeAlias = Annotated[str, _option("--queue", metavar="NAME", help="The run's queue.")]
Priority: TypeAlias = Annotated[int, _option("--priority", metavar="N", help="Higher goes first.")]
Delay: TypeAlias = Annotated[float, _option("--delay", metavar="S", help="Start only after so many seconds.")]
Tags: TypeAlias = Annotated[Texts, _option("--tag", metavar="NAME=VALUE", help="May be given several times.")]
Timeout: TypeAlias = Annotated[
    Number, _option("--timeout", metavar="S", help="Wait at most so many seconds (exit 124).")
]
Quiet: TypeAlias = Annotated[bool, _option("--quiet", "-q", help="No progress on stderr.")]
LeaseTtl: TypeAlias = Annotated[Number, _option("--lease-ttl-s", metavar="S", help=_LEASE)]
Grace: TypeAlias = Annotated[Number, _option("--grace-s", metavar="S", help=_GRACE)]
Modules: TypeAlias = Annotated[list[str], _argument("MODULE…", "Dotted modules or .py files.")]
IdleWorker: TypeAlias = Annotated[bool, _option("--exit-when-idle", help="Leave when nothing runs or is due soon.")]

# Looking
_LIMIT_PS = "At most so many, newest first; 0: all. Else 100, with --json all."
_LIMIT_HISTORY = "Only the last so many; 0: all. Else 200, with --json all."
OfStatus: TypeAlias = Annotated[
    Texts, _option("--status", metavar="STATUS", help="Only of this status; may be given several times.")
]
OfAgent: TypeAlias = Annotated[
    Texts, _option("--agent", metavar="AGENT", help="Only of this agent; may be given several times.")
]
OfQueue: TypeAlias = Annotated[Text, _option("--queue", metavar="NAME", help="Only of this queue.")]
LimitRuns: TypeAlias = Annotated[Count, _option("--limit", "-n", metavar="N", help=_LIMIT_PS)]
LimitEntries: TypeAlias = Annotated[Count, _option("--limit", "-n", metavar="N", help=_LIMIT_HISTORY)]

# Steering
_SIGNAL = "Also -TERM (cancel), -KILL (end at once), -STOP (pause), -CONT (resume), -INT (cancel the step)."
Signal: TypeAlias = Annotated[str, _option("--signal", "-s", metavar="SIGNAL", help=_SIGNAL)]
Note: TypeAlias = Annotated[Text, _option("--note", metavar="TEXT", help="The agent reads it as run.note.")]
Step: TypeAlias = Annotated[str, _argument("STEP", "The step's position, or its name.")]
Done: TypeAlias = Annotated[Text, _option("--done", metavar="JSON", help="It happened, with this result.")]
Again: TypeAlias = Annotated[bool, _option("--retry", help="Do it again.")]
Fail: TypeAlias = Annotated[bool, _option("--fail", help="It failed.")]
