"""`pause`, `resume`, `cancel`, `retry`, `kill`, `resolve`: requests that are durable before they are acknowledged (C1).

Each run is asked for by itself: one that refuses does not stop the others, and the exit code is that of the worst.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from perdure.api.handle import Handle
from perdure.api.views import run_view
from perdure.base.status import ENDED, Status
from perdure.cli import arguments, client, failures, output, settings
from perdure.cli.settings import Common, Settings
from perdure.errors import NotFound, UsageError

SIGNALS: Final = {
    "TERM": "cancel",
    "15": "cancel",
    "KILL": "kill",
    "9": "kill",
    "STOP": "pause",
    "19": "pause",
    "CONT": "resume",
    "18": "resume",
    "INT": "interrupt",
    "2": "interrupt",
}


def kill(common: Common, ids: list[str], signal: str) -> int:
    word = SIGNALS.get(signal.upper().removeprefix("SIG"))
    if word is None:
        raise UsageError(
            f"kill: there is no signal {signal!r} for runs. "
            "Use -TERM (cancel), -KILL (end at once), -STOP (pause), -CONT (resume), -INT (cancel the step)"
        )
    return steer(common, ids, word)


def steer(common: Common, ids: list[str], word: str, *, note: str | None = None) -> int:
    def ask(handle: Handle) -> Awaitable[None]:
        match word:
            case "pause":
                return handle.pause()
            case "resume":
                return handle.resume(note)
            case "cancel":
                return handle.cancel()
            case "retry":
                return handle.retry()
            case "kill":
                return handle.terminate()
            case _:
                return handle.interrupt()

    return client.execute(_steer(settings.read(common), common, ids, word, ask))


def resolve(common: Common, run: str, step: str, *, done: str | None, retry: bool, fail: bool) -> int:
    if (done is not None) + retry + fail != 1:
        raise UsageError(
            "resolve needs one of --done JSON (it happened, with this value), --retry (do it again), --fail. "
            f"`perdure show {run}` lists the steps in doubt"
        )
    value: Any = arguments.parse(done, "--done") if done is not None else ...

    def ask(handle: Handle) -> Awaitable[None]:
        return handle.resolve(step, done=value, retry=retry, fail=fail)

    return client.execute(_steer(settings.read(common), common, [run], "resolve", ask))


async def _steer(
    chosen: Settings, common: Common, ids: list[str], word: str, ask: Callable[[Handle], Awaitable[None]]
) -> int:
    worst = failures.OK
    async with client.connected(chosen) as app:
        for given in dict.fromkeys(ids):
            try:
                row = await client.find(app, given)
                await ask(app.get(row.id))
                row = await client.find(app, row.id)
            except (UsageError, NotFound) as exc:
                failure = failures.explain(exc)
                assert failure is not None
                failures.say(failure.message)
                worst = max(worst, failure.code)
                continue
            if common.json:
                output.emit(run_view(row, app.world.now()).to_dict())
                continue
            output.line(f"{row.id}: {word} accepted; {_outlook(row.status, row.worker, row.module, chosen.prefix)}")
    return worst


def _outlook(status: Status, worker: int | None, module: str, perdure: str) -> str:
    if status in ENDED or status is Status.PAUSED:
        return f"it is {status}"
    if worker is not None:
        return f"it is {status}, its worker acts on it"
    return f"it is {status}; a worker takes it up (`{perdure} worker {module}` if none runs)"
