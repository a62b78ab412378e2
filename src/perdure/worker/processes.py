"""Child processes for CPU-bound steps: they never hold the worker's interpreter lock.

P1. A call that was begun ends in an answer, in a typed error of the step, or in `ChildDied`, an unknown outcome. A call
    that was not begun says so: `RetryLater`.
P2. Cancelling a call that was begun kills the child and all in its process group; the next call gets a fresh child.
P3. Nothing crosses but bytes: the codec's payloads, and names that registered code gave.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from perdure.base import limits
from perdure.errors import UsageError
from perdure.rules.step_endings import ChildDied, ChildError
from perdure.worker import process_frames
from perdure.worker.process_frames import Answer, Request, check_frame
from perdure.worker.process_slots import Job, Slot

__all__ = ["ChildDied", "ChildError", "ProcessPool"]


class ProcessPool:
    """Runs module-level functions in child processes that are started when needed and kept."""

    def __init__(self, processes_max: int = limits.processes_max) -> None:
        if processes_max < 1:
            raise UsageError(f"A pool needs 1 process or more, not {processes_max}.")
        self._free = asyncio.Semaphore(processes_max)
        self._idle: list[Slot] = []
        self._slots: list[Slot] = []
        self._closed = False

    @property
    def busy(self) -> int:
        """Calls that have a child now."""
        return len(self._slots) - len(self._idle)

    @property
    def pids(self) -> list[int]:
        """The children that are alive."""
        return [pid for slot in self._slots if (pid := slot.pid) is not None]

    async def run(
        self,
        module: str,
        qualname: str,
        payload: bytes,
        info: dict[str, Any],
        *,
        on_start: Callable[[], None] | None = None,
    ) -> bytes:
        """Call `module.qualname` with the encoded `[args, kwargs]`; the encoded result. See P1 for how it can fail.

        `on_start` is called when a child is free for it: before that nothing has happened.
        """
        _check_callable_elsewhere(module, qualname)
        request = msgspec.msgpack.encode(Request(_importable(module), qualname, payload, info))
        check_frame(request)
        async with self._free:
            if self._closed:
                raise UsageError("The process pool is closed: the worker has stopped. Start the app again.")
            slot = self._idle.pop() if self._idle else self._add_slot()
            try:
                if on_start is not None:
                    on_start()
                answer = await self._call(slot, Job(request, asyncio.get_running_loop().create_future()))
            finally:
                self._idle.append(slot)
        if answer.error is not None:
            failed = answer.error
            raise ChildError(failed.error, kind=failed.kind, retry_after=failed.retry_after, bases=failed.bases)
        assert answer.ok is not None
        return answer.ok

    def close(self) -> None:
        """Kill the children and take no more calls; calls under way end in `ChildDied`."""
        self._closed = True
        for slot in self._slots:
            slot.close()

    def _add_slot(self) -> Slot:
        slot = Slot()
        self._slots.append(slot)
        return slot

    async def _call(self, slot: Slot, job: Job) -> Answer:
        slot.submit(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            slot.drop(job)  # P2
            raise


def _check_callable_elsewhere(module: str, qualname: str) -> None:
    if process_frames.in_child:
        raise UsageError(
            "A step that runs in a child process cannot use child processes itself. If this is a script that starts "
            "its app when it is imported, put that under `if __name__ == '__main__':`."
        )
    if "<" in qualname:
        raise UsageError(
            f"{module}.{qualname} is defined inside a function, where a child process cannot find it. "
            f"Move it to the top level of its module."
        )


def _importable(module: str) -> str:
    """The name under which another process imports the module: a script is `__main__` only in its own."""
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None:
        raise UsageError("A step defined at a prompt cannot run in a child process. Put it into a file.")
    return Path(file).stem
