"""Signals: the first one asks to stop, the second one stops.

X1. Handlers are Python's own, not the loop's: a step that blocks the loop cannot keep the second signal from working.
X2. Whatever users' threads do, the process leaves soon after its work is over.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from perdure.cli import failures, output
from perdure.worker.worker import Worker

_LINGER_S: Final = 2.0
_LOOK_S: Final = 0.1


class Stop:
    """`signal` is the number of the first one, 0 before it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.signal = 0
        self.asked = asyncio.Event()
        self._loop = loop

    @property
    def code(self) -> int:
        return failures.INTERRUPTED if self.signal == signal.SIGINT else failures.OK

    def heed(self, number: int, _frame: FrameType | None) -> None:
        if self.signal:
            leave_now(failures.INTERRUPTED if number == signal.SIGINT else failures.TERMINATED)
        self.signal = number
        self._loop.call_soon_threadsafe(self.asked.set)


@contextmanager
def stop_signals() -> Generator[Stop, None, None]:
    """To be entered on the running loop, in the main thread."""
    stop = Stop(asyncio.get_running_loop())
    before = {number: signal.signal(number, stop.heed) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            # Once asked to stop, a further signal still means "at once" until the process is gone.
            signal.signal(number, stop.heed if stop.signal else handler)


async def until_failure(worker: Worker | None) -> None:
    """Never returns; raises what a worker died of."""
    while worker is None or worker.failure is None:  # noqa: ASYNC110  # a worker keeps its failure, it does not announce it
        await asyncio.sleep(_LOOK_S)
    raise worker.failure


def leave_now(code: int) -> None:
    """Without another step of anybody's code; what the store has not is redone or resolved like after a crash."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")  # a live display hides the cursor
    try:
        output.flush()
    except (OSError, RuntimeError):
        pass  # RuntimeError: the signal came in the middle of a write
    os._exit(code)


def leave_soon(code: int) -> None:
    """Let Python end in order, unless a thread of users' code keeps it from ending (X2)."""

    def wait() -> None:
        threading.Event().wait(_LINGER_S)
        os._exit(code)

    threading.Thread(target=wait, name="perdure-exit", daemon=True).start()
