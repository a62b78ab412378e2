"""How a run ended or where it stands: the result on stdout, anything else on stderr, and the exit code."""

from __future__ import annotations

import re
from typing import Final

from perdure.api.handle import parked_message
from perdure.base import codec
from perdure.base.records import ErrorData
from perdure.base.status import ENDED, Status
from perdure.cli import failures, output
from perdure.cli.plan import Plan
from perdure.cli.stopping import Stop
from perdure.store.contract import RunRow

HORIZON_S: Final = 15.0
"""`--exit-when-idle` waits for what is due within this time."""

_FRAME: Final = re.compile(r'File "(.+)", line (\d+)')


def report(row: RunRow, plan: Plan) -> int:
    perdure, run = plan.settings.prefix, row.id
    match row.status:
        case Status.COMPLETED:
            output.emit(codec.show(row.result) if row.result is not None else None)
            return failures.OK
        case Status.FAILED:
            say = f"run {run} failed{_why(row.error)}. `{perdure} retry {run}` goes on from there, "
            failures.say(output.plain(f"{say}`{perdure} show {run}` says more"))
            return failures.RUN_FAILED
        case Status.CANCELLED:
            failures.say(f"run {run} was cancelled")
            return failures.CANCELLED
        case Status.PARKED:
            failures.say(output.plain(parked_message(row)))
            return failures.DIVERGED if row.reason == "diverged" else failures.HUMAN
        case Status.PAUSED:
            failures.say(f"run {run} is paused. `{perdure} resume {run}` lets it go on")
            return failures.HUMAN
        case Status.WAITING if row.ready_at is None:
            what = row.waiting_on or "something"
            failures.say(f"run {run} waits for {what}, which only a person can bring. `{perdure} show {run}` says more")
            return failures.HUMAN
        case _:
            output.note(f"run {run} is {row.status}; nothing is due within {HORIZON_S:g} s. {plan.go_on(run)}")
            return failures.OK


def left(row: RunRow, plan: Plan, stop: Stop) -> int:
    """The worker was closed before the run's end, unless the step it finished was the last one."""
    if row.status in ENDED or row.status is Status.PARKED:
        return report(row, plan)
    why = "" if stop.signal else f": --timeout {plan.options.timeout:g} is over"
    if row.worker is not None:
        failures.say(f"run {row.id} goes on in another worker{why}. {plan.attach(row.id)}")
        return stop.code if stop.signal else failures.TIMEOUT
    failures.say(f"run {row.id} is {row.status}, not ended{why}. {plan.go_on(row.id)}")
    return stop.code if stop.signal else failures.TIMEOUT


def _why(error: ErrorData | None) -> str:
    if error is None:
        return ""
    frames = _FRAME.findall(error.traceback)
    at = f" at {frames[-1][0]}:{frames[-1][1]}" if frames else ""
    place = f" in step {error.position} {error.step}" if error.step else at
    # A StepError's message begins with the type that the step raised.
    return f"{place}: {error.message}" if error.type == "StepError" else f"{place}: {error.type}: {error.message}"
