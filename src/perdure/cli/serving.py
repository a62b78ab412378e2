"""`worker`: serve every agent of some modules until told to stop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from perdure.api import registry
from perdure.api.app import Perdure
from perdure.base.status import Status
from perdure.cli import client, failures, loading, settings
from perdure.cli.logs import log_to_stderr
from perdure.cli.reporting import HORIZON_S
from perdure.cli.settings import Common, Settings
from perdure.cli.stopping import stop_signals, until_failure
from perdure.events.bus import Event, RunClaimed, RunEnded, RunReleased

log = logging.getLogger("perdure.worker")


def worker(
    common: Common, modules: list[str], *, exit_when_idle: bool, lease_ttl_s: float | None, grace_s: float | None
) -> int:
    chosen = settings.read(common, lease_ttl_s=lease_ttl_s, grace_s=grace_s)
    log_to_stderr(verbose=common.verbose, least=logging.INFO)
    loading.load_modules(modules)
    return client.execute(_serve(chosen, exit_when_idle=exit_when_idle), fast=True)


async def _serve(chosen: Settings, *, exit_when_idle: bool) -> int:
    with stop_signals() as stop:
        app = Perdure(chosen.store, lease_ttl_s=chosen.lease_ttl_s, grace_s=chosen.grace_s)
        app.events.subscribe(_tell)  # before it starts: what it finds then is told too
        async with app:
            serving = app.worker
            assert serving is not None
            log.info("worker %d serves %s on %s", serving.number, ", ".join(sorted(registry.agents)), chosen.store)
            spawn = asyncio.create_task
            watch: set[asyncio.Task[Any]] = {spawn(stop.asked.wait()), spawn(until_failure(serving))}
            if exit_when_idle:
                watch.add(spawn(serving.wait_idle(HORIZON_S)))
            done, left = await asyncio.wait(watch, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            for task in done:
                task.result()  # a failure of the worker
            if stop.signal:
                held = len(serving.running)
                log.info(
                    "stopping: %d runs finish their steps, for at most %g s; once more stops at once",
                    held,
                    chosen.grace_s,
                )
        log.info("worker %d has left%s", serving.number, "" if stop.signal else ": nothing to do")
    return failures.OK


def _tell(event: Event) -> None:
    match event:
        case RunClaimed():
            log.debug("run %s taken up (epoch %d)", event.id, event.epoch)
        case RunEnded():
            log.info("run %s %s", event.id, event.status)
        case RunReleased():
            level = logging.WARNING if event.status == Status.PARKED else logging.INFO
            log.log(level, "run %s %s%s", event.id, event.status, f" ({event.reason})" if event.reason else "")
        case _:
            pass
