"""Child processes one by one: start, serve, kill, reap.

H1. A process is signalled only while its parent has not reaped it, so never a stranger with its number.
H2. Each child is started, served and reaped by one thread, which lives as long as it: the kernel ties a child's life
    to the *thread* that started it.
H3. A job is either begun, and ends in an answer or in `ChildDied`, or not begun, and the failure says so.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue

import msgspec

from perdure.errors import RetryLater
from perdure.rules.step_endings import ChildDied
from perdure.worker.process_frames import Answer, BrokenFrame, Hello, read_frame, write_frame

_BOOT = "from perdure.worker.process_child import main; main()"
_CHILD_START_S = 60.0


@dataclass(slots=True, eq=False)
class Job:
    request: bytes
    future: asyncio.Future[Answer]
    dropped: bool = False

    def settle(self, answer: Answer | None, failure: Exception | None) -> None:
        """From the slot's thread: hand over the outcome, unless nobody is there any more."""
        with suppress(RuntimeError):  # the loop is closed
            self.future.get_loop().call_soon_threadsafe(self._settle, answer, failure)

    def _settle(self, answer: Answer | None, failure: Exception | None) -> None:
        if self.future.done():
            return
        if failure is not None:
            self.future.set_exception(failure)
        elif answer is not None:
            self.future.set_result(answer)
        else:
            self.future.cancel()


@dataclass(slots=True, eq=False)
class Child:
    """A started process and the parent's ends of its pipes. Only its slot's thread uses the pipes."""

    process: subprocess.Popen[bytes]
    request_fd: int
    answer_fd: int
    end_fd: int | None
    poll: select.poll = field(default_factory=select.poll)

    def __post_init__(self) -> None:
        self.poll.register(self.answer_fd, select.POLLIN)
        if self.end_fd is not None:
            # A grandchild may hold the pipe open when the child is gone, so the pipe's end is not enough.
            self.poll.register(self.end_fd, select.POLLIN)

    def receive(self, wait_s: float | None = None) -> bytes | None:
        """The next frame; None when the child is gone or has not answered in time."""

        def wait() -> None:
            ready = self.poll.poll(None if wait_s is None else wait_s * 1_000)
            if all(fd != self.answer_fd for fd, _ in ready):
                raise BrokenFrame

        try:
            return read_frame(self.answer_fd, wait)
        except (BrokenFrame, OSError):
            return None

    def send(self, frame: bytes) -> None:
        with suppress(OSError):  # a child that is gone is found by receive()
            write_frame(self.request_fd, frame)

    def is_gone(self) -> bool:
        """Between calls the child says nothing: whatever there is to see is its end."""
        return bool(self.poll.poll(0))

    def kill(self) -> None:
        """Kill the whole group. The caller knows that the process has not been reaped (H1)."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def bury(self) -> int:
        for fd in (self.request_fd, self.answer_fd, self.end_fd):
            if fd is not None:
                os.close(fd)
        return self.process.wait()


class Slot:
    """One child at a time and the thread that serves it (H2)."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._current: Job | None = None
        self._closed = False
        self._started = False

    @property
    def pid(self) -> int | None:
        child = self._child
        return None if child is None else child.process.pid

    def submit(self, job: Job) -> None:
        if not self._started:
            threading.Thread(target=self._serve, name="perdure-child", daemon=True).start()
            self._started = True
        self._jobs.put(job)

    def drop(self, job: Job) -> None:
        """Nobody waits for this job any more: end it if it was begun, else never begin it."""
        with self._lock:
            job.dropped = True
            if self._current is job and self._child is not None:
                self._child.kill()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()
        self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.settle(self._exchange(job), None)
            except Exception as failure:  # noqa: BLE001 - the caller gets it; the thread must go on serving
                job.settle(None, failure)
            del job
        self._end_child()

    def _exchange(self, job: Job) -> Answer | None:
        child = self._living_child()
        with self._lock:
            if job.dropped:
                return None
            if self._closed:
                raise RetryLater("The worker is stopping. The step was not begun; it is tried again.")
            self._current = job
        child.send(job.request)
        frame = child.receive()
        with self._lock:
            self._current = None
            killed = job.dropped
        answer = None if frame is None else _decoded(frame)
        if answer is None or killed:
            how = _how_it_ended(self._end_child())
            raise ChildDied(
                f"The child process that worked on the step {how}. Whether its effect happened is unknown; "
                f"the step's rule decides what follows."
            )
        return answer

    def _living_child(self) -> Child:
        if self._child is not None and self._child.is_gone():
            self._end_child()
        if self._child is None:
            child = _spawn()
            with self._lock:
                self._child = child
                if self._closed:
                    child.kill()
            if child.receive(_CHILD_START_S) is None:
                how = _how_it_ended(self._end_child())
                raise RetryLater(f"A child process {how} before it took a step. The step was not begun.")
        return self._child

    def _end_child(self) -> int:
        """Kill what is left of the child and its group, and reap it."""
        with self._lock:
            child, self._child = self._child, None
            if child is None:
                return 0
            child.kill()
        return child.bury()


def _spawn() -> Child:
    request_out, request_in = os.pipe()
    answer_out, answer_in = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, str(request_out), str(answer_in), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=(request_out, answer_in),
            process_group=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except OSError as cause:
        for fd in (request_in, answer_out):
            os.close(fd)
        raise RetryLater(f"No child process could be started ({cause}). The step was not begun.") from cause
    finally:
        for fd in (request_out, answer_in):
            os.close(fd)
    child = Child(process, request_in, answer_out, _end_fd(process.pid))
    child.send(msgspec.msgpack.encode(Hello(list(sys.path), os.environ.get("PYTHONPATH"))))
    return child


def _end_fd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, where the system has such a thing."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _decoded(frame: bytes) -> Answer | None:
    try:
        return msgspec.msgpack.decode(frame, type=Answer)
    except msgspec.MsgspecError:
        return None  # the step's code wrote into our pipe: nothing it says can be trusted


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was ended by {name}"
