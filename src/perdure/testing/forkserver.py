"""Fresh processes at a fraction of a start: a server that has imported everything and opened nothing forks one process per job.

F1. The server itself never opens a store, makes a loop or starts a thread, so every fork begins as a new process would after its imports.
F2. When the server's standard input closes, everything it started is killed.

Standard input: one line `{"log": FILE, "job": {…}}` per process wanted. Standard output: `{"started": PID}` in the order of the requests, and
`{"ended": PID, "status": N}`, negative for a signal, whenever one ends.
"""

from __future__ import annotations

import importlib
import logging
import os
import select
import signal
import sys
from types import FrameType
from typing import NoReturn

import msgspec

from perdure.testing import crash_job
from perdure.testing.crash_job import Job


class Wanted(msgspec.Struct, frozen=True):
    log: str
    job: Job


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    started: int = 0
    ended: int = 0
    status: int = 0


def main() -> None:
    crash_job.load(sys.argv[1:])
    importlib.import_module("perdure.store.sqlite.store")  # once here instead of in every fork
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, _nothing)  # it only has to wake the loop below
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test that started us
    children: set[int] = set()
    rest = b""
    while True:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            _reap(children)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                children.add(_start(msgspec.json.decode(line, type=Wanted)))
    for pid in children:  # F2
        os.kill(pid, signal.SIGKILL)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def _reap(children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        _say(Said(ended=pid, status=os.waitstatus_to_exitcode(status)))


def _start(wanted: Wanted) -> int:
    pid = os.fork()
    if pid == 0:
        _become(wanted)
    _say(Said(started=pid))
    return pid


def _become(wanted: Wanted) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        log = os.open(wanted.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = crash_job.execute(wanted.job)
    except BaseException:
        logging.getLogger("perdure.testing").exception("the process of a crash test failed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _say(said: Said) -> None:
    os.write(1, msgspec.json.encode(said) + b"\n")


if __name__ == "__main__":
    main()
