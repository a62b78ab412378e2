"""`worker`: serve every agent of some modules until told to stop."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from perdure.api import registry
from perdure.api.app import Perdure
from perdure.cli import client, failures, loading, settings
from perdure.cli.running import HORIZON_S
from perdure.cli.settings import Common, Settings
from perdure.cli.stopping import leave_soon, stop_signals
from perdure.events.bus import Event, RunClaimed, RunEnded, RunReleased
from perdure.worker.worker import Worker

log = logging.getLogger("perdure.worker")
_WATCH_S = 0.2


def worker(common: Common, modules: list[str], *, exit_when_idle: bool, lease_ttl_s: float | None, grace_s: float | None) -> int:
    chosen = settings.read(common, lease_ttl_s=lease_ttl_s, grace_s=grace_s)
    log_to_stderr(verbose=common.verbose)
    loading.load_modules(modules)
    code = client.execute(_serve(chosen, exit_when_idle=exit_when_idle), fast=True)
    leave_soon(code)
    return code


def log_to_stderr(*, verbose: bool) -> None:
    root = logging.getLogger("perdure")
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        root.addHandler(handler)
        root.propagate = False  # users' own logging set-up would print it twice
    root.setLevel(logging.DEBUG if verbose else logging.INFO)


async def _serve(chosen: Settings, *, exit_when_idle: bool) -> int:
    with stop_signals() as stop:
        async with Perdure(chosen.store, lease_ttl_s=chosen.lease_ttl_s, grace_s=chosen.grace_s) as app:
            serving = app.worker
            assert serving is not None
            app.events.subscribe(_tell)
            log.info("worker %d serves %s on %s", serving.number, ", ".join(sorted(registry.agents)), chosen.store)
            watch: set[asyncio.Task[Any]] = {asyncio.create_task(stop.asked.wait()), asyncio.create_task(_until_failure(serving))}
            if exit_when_idle:
                watch.add(asyncio.create_task(serving.wait_idle(HORIZON_S)))
            done, left = await asyncio.wait(watch, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            for task in done:
                task.result()  # a failure of the worker
            if stop.signal:
                log.info("stopping: %d runs are finished or handed back, for at most %g s; once more stops at once", len(serving.running), chosen.grace_s)
        log.info("worker %d has left%s", serving.number, "" if stop.signal else ": nothing to do")
    return failures.OK


async def _until_failure(serving: Worker) -> None:
    while serving.failure is None:
        await asyncio.sleep(_WATCH_S)
    raise serving.failure


def _tell(event: Event) -> None:
    match event:
        case RunClaimed():
            log.debug("run %s taken up (epoch %d)", event.id, event.epoch)
        case RunEnded():
            log.info("run %s %s", event.id, event.status)
        case RunReleased():
            log.info("run %s %s%s", event.id, event.status, f" ({event.reason})" if event.reason else "")
        case _:
            pass
