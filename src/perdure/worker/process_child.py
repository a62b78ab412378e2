"""A child process that executes CPU-bound steps, one at a time, for the worker that started it.

D1. The child lives no longer than its parent: the kernel kills it on Linux, and elsewhere the closed request pipe does.
D2. Signals meant for the worker (Ctrl-C, a service manager's SIGTERM) are the parent's to act on.
D3. Names to import come from the parent's registered code, never from stored data.
D4. Requests and answers have pipes of their own; standard output and error stay the user's.
D5. Whatever a step raises is answered; only the end of the process leaves a request without an answer.
"""

from __future__ import annotations

import contextvars
import ctypes
import importlib
import importlib.util
import inspect
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from operator import attrgetter
from types import FrameType
from typing import Any, cast

import msgspec

from perdure.base import codec
from perdure.errors import UsageError
from perdure.kernel.failure import error_data
from perdure.rules.backoff import retry_after
from perdure.rules.classify import known_kind
from perdure.rules.step_endings import as_failure
from perdure.worker import process_frames
from perdure.worker.process_frames import Answer, ErrorInfo, Hello, Request, read_frame, write_frame

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the parent closes the pipe: `process_child REQUEST_FD ANSWER_FD PARENT_PID`."""
    process_frames.in_child = True
    request_fd, answer_fd, parent_pid = (int(word) for word in sys.argv[1:4])
    del sys.argv[1:]
    for fd in (request_fd, answer_fd):
        os.set_inheritable(fd, False)  # a program that a step starts must not hold the pipes open
    _die_with(parent_pid, request_fd)
    _leave_signals_to_parent()
    first = read_frame(request_fd)
    if first is None:
        return
    _become_like_parent(msgspec.msgpack.decode(first, type=Hello))
    encode = msgspec.msgpack.encode
    write_frame(answer_fd, encode(Answer()))
    requests = msgspec.msgpack.Decoder(Request)
    while (frame := read_frame(request_fd)) is not None:
        answer = encode(_answer(requests.decode(frame)))  # the codec bounds a result, the limits an error
        _flush()
        write_frame(answer_fd, answer)


def _answer(request: Request) -> Answer:
    try:
        return Answer(ok=contextvars.copy_context().run(_execute, request))
    except BaseException as raised:  # noqa: BLE001 - D5
        return Answer(error=_describe(raised))


def _execute(request: Request) -> bytes:
    fn = _find(request.module, request.qualname)
    codec.register_from(fn)
    args, kwargs = cast("tuple[list[Any], dict[str, Any]]", codec.decode(request.payload))
    _enter_step(request.info)
    return codec.encode(fn(*args, **kwargs))


def _find(module: str, qualname: str) -> Callable[..., Any]:
    loaded = importlib.import_module(module)  # D3
    try:
        found = attrgetter(qualname)(loaded)
    except AttributeError:
        raise UsageError(
            f"A child process finds no {qualname} in module {module}. A step that runs in a process must be defined at "
            f"the top level of its module, whatever `__name__` is there."
        ) from None
    fn: object = getattr(found, "fn", found)  # a step object holds its plain function
    if not callable(fn) or inspect.iscoroutinefunction(fn):
        raise UsageError(f"{module}.{qualname} is not a plain function. Only `def` steps can run in a process.")
    return cast("Callable[..., Any]", fn)


def _enter_step(info: dict[str, Any]) -> None:
    """Make `run.key` and `run.attempt` readable in this context."""
    name = "perdure.worker.step_context"
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name).enter(info)


def _describe(raised: BaseException) -> ErrorInfo:
    own = raised.__traceback__
    while own is not None and own.tb_frame.f_globals.get("__name__") == __name__:
        own = own.tb_next  # frames of ours tell the user nothing
    failure = as_failure(raised.with_traceback(own))
    kind = known_kind(failure)
    return ErrorInfo(
        error=error_data(failure),
        kind="" if kind is None else kind.value,
        retry_after=retry_after(raised),
        bases=tuple(f"{base.__module__}:{base.__qualname__}" for base in type(raised).__mro__),
    )


def _become_like_parent(hello: Hello) -> None:
    sys.path[:] = hello.path
    # The parent lent us its path to start with; what the step's code starts must not inherit that.
    os.environ.pop("PYTHONPATH", None)
    if hello.pythonpath is not None:
        os.environ["PYTHONPATH"] = hello.pythonpath


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()  # the child may be killed before its next line
        except (OSError, ValueError, AttributeError):
            continue


def _die_with(parent_pid: int, request_fd: int) -> None:
    """Set up D1."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent_pid:
            os._exit(1)  # it died before the kernel knew
    threading.Thread(target=_watch, args=(request_fd,), name="perdure-parent", daemon=True).start()


def _watch(request_fd: int) -> None:
    poll = select.poll()
    poll.register(request_fd, 0)  # only hang-up is reported: the bytes are the main thread's
    poll.poll()
    os.killpg(0, signal.SIGKILL)  # the programs a step has started are in our group


def _leave_signals_to_parent() -> None:
    """Set up D2. By handlers, not SIG_IGN, which the programs that a step starts would inherit."""
    kept = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in kept.items():
            signal.signal(number, handler)

    os.register_at_fork(after_in_child=restore)


def _ignore(number: int, frame: FrameType | None) -> None:
    """The parent decides."""
