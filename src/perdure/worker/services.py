"""What every execution of one worker shares."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass

from perdure.base.world import World
from perdure.events.bus import Events
from perdure.worker.deadlines import Deadlines
from perdure.worker.lease import Lease
from perdure.worker.processes import ProcessPool
from perdure.worker.threads import ThreadPool
from perdure.worker.writer import Writer


@dataclass(slots=True)
class Services:
    world: World
    events: Events
    writer: Writer
    lease: Lease
    deadlines: Deadlines
    threads: ThreadPool
    processes: ProcessPool
    context: Context
    """What steps see of context variables: what the worker was started with. Nothing passes from one step to another."""
    gone: Callable[[int], None]
    """The run of that number has left this worker's memory."""
