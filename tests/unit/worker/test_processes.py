"""Child processes for CPU-bound steps."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perdure.base import codec, limits
from perdure.errors import PayloadTooLarge, RetryLater, UsageError
from perdure.kernel.failure import raise_as
from perdure.rules.backoff import retry_after_s
from perdure.rules.classify import Kind, classify
from perdure.worker import process_frames, process_slots
from perdure.worker.processes import ChildDied, ChildError, ProcessPool

T = TypeVar("T")
TOO_LONG_S = 90.0
INFO: dict[str, Any] = {"run_id": "r1", "key": "k1", "attempt": 1, "step": "s"}

STEPS = """
import os, re, signal, subprocess, sys, time
from dataclasses import dataclass

@dataclass
class Point:
    x: int
    y: int

class DeclaredError(Exception):
    pass

class SlowDownError(Exception):
    retry_after = "Fri, 02 Jan 2026 03:04:35 GMT"
    status_code = 429

class SilentError(Exception):
    def __str__(self):
        raise RuntimeError("no message")

class StepObject:
    def __init__(self, fn):
        self.fn = fn

    def __call__(self, *args):
        raise RuntimeError("the wrapper was called")

def pid():
    return os.getpid()

def add(a, b=0):
    return a + b

def moved(point, by):
    return Point(point.x + by, point.y + by)

def size(data):
    return len(data)

def blob(length):
    return b"x" * length

def fail(name):
    raise {"value": ValueError("bad"), "type": TypeError("wrong"), "timeout": TimeoutError("late"),
           "declared": DeclaredError("no"), "slow": SlowDownError("wait"), "silent": SilentError(),
           "exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "lost": ConnectionResetError("gone")}[name]

def unstorable():
    return {"items": [1, open(os.devnull)]}

def die(status):
    os._exit(status)

def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)

def spin(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    while True:
        pass

def spin_holding_the_lock(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    re.match("(a+)+$", "a" * 64 + "b")  # for ages, and no other thread of this process runs

def spin_with_program(path):
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    with open(path + ".program", "w") as file:
        file.write(str(program.pid))
    spin(path)

def leave_fork_and_die():
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(7)

def signals_ignored():
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    script = "import signal; print([int(signal.getsignal(n) is not signal.SIG_IGN) for n in (2, 15)])"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip()

def group():
    return os.getpid() == os.getpgrp()

def environment():
    return [os.environ.get("PYTHONPATH"), sys.path, sys.stdin.read(), sys.argv]

def say(text):
    print(text)
    print(text, file=sys.stderr)

async def asynchronous():
    return 1

wrapped = StepObject(add)
number = 3
"""


@pytest.fixture(autouse=True)
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of steps that parent and child can import."""
    file = tmp_path / "child_steps.py"
    file.write_text(STEPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "child_steps", raising=False)
    return file


def on_pool(scenario: Callable[[ProcessPool], Awaitable[T]], processes_max: int = 2) -> T:
    """Run a scenario with a pool of its own, close it, and see every child gone."""

    async def main() -> T:
        pool = ProcessPool(processes_max)
        try:
            async with asyncio.timeout(TOO_LONG_S):
                return await scenario(pool)
        finally:
            ends = [os.pidfd_open(pid) for pid in pool.pids]
            pool.close()
            for end in ends:
                wait_for_end(end)

    return asyncio.run(main())


async def call(pool: ProcessPool, name: str, *args: object, **kwargs: object) -> Any:
    return codec.decode(await pool.run("child_steps", name, codec.encode([list(args), kwargs]), INFO))


def wait_for_end(pidfd: int) -> None:
    """Wait until the process is dead; a fact, told by the kernel."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    ended = poll.poll(TOO_LONG_S * 1_000)
    os.close(pidfd)
    assert ended, "the process lives on"


async def written_pid(path: Path) -> int:
    """The pid that a step writes as soon as it runs."""
    while not (path.exists() and path.read_text()):
        await asyncio.sleep(0.002)
    return int(path.read_text())


def gone(pid: int) -> bool:
    """Dead and reaped: no zombie is left either."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def until_gone(pid: int) -> None:
    while not gone(pid):
        await asyncio.sleep(0.002)


def test_a_hundred_calls_over_two_children() -> None:
    """Children are kept and shared; every call gets its own answer."""

    async def scenario(pool: ProcessPool) -> None:
        answers = await asyncio.gather(*(call(pool, "add", n, b=1) for n in range(100)))
        assert answers == list(range(1, 101))
        pids = set(await asyncio.gather(*(call(pool, "pid") for _ in range(20))))
        assert len(pids) <= 2
        assert os.getpid() not in pids
        assert sorted(pids | set(pool.pids)) == sorted(pool.pids)
        assert len(pool.pids) == 2
        assert pool.busy == 0

    on_pool(scenario)


def test_typed_values_cross_by_the_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataclass of the step's own module arrives as one, both ways."""
    import child_steps  # type: ignore[import-not-found]  # written by the fixture

    codec.register(child_steps.Point)

    async def scenario(pool: ProcessPool) -> None:
        assert await call(pool, "moved", child_steps.Point(1, 2), 3) == child_steps.Point(4, 5)

    on_pool(scenario, 1)


def test_a_step_object_is_unwrapped() -> None:
    """The name in the module is the decorated step; the child calls its plain function."""

    async def scenario(pool: ProcessPool) -> None:
        assert await call(pool, "wrapped", 2, 3) == 5

    on_pool(scenario, 1)


@pytest.mark.parametrize(
    ("name", "type_name", "kind"),
    [
        ("value", "ValueError", Kind.REFUSED),
        ("type", "TypeError", Kind.PERMANENT),
        ("timeout", "TimeoutError", Kind.UNKNOWN),
        ("lost", "ConnectionResetError", Kind.UNKNOWN),
        ("slow", "SlowDownError", Kind.REFUSED),
        ("silent", "SilentError", Kind.REFUSED),
        ("exit", "StepEscaped", Kind.REFUSED),
        ("interrupt", "StepEscaped", Kind.REFUSED),
    ],
)
def test_errors_come_back_typed_and_classified(name: str, type_name: str, kind: Kind) -> None:
    """With type, message and the user's traceback; the child lives on."""

    async def scenario(pool: ProcessPool) -> None:
        before = await call(pool, "pid")
        with pytest.raises(ChildError) as caught:
            await call(pool, "fail", name)
        assert caught.value.error.type == type_name
        assert classify(caught.value) is kind
        assert "child_steps.py" in caught.value.error.traceback
        assert "process_child.py" not in caught.value.error.traceback
        assert await call(pool, "pid") == before

    on_pool(scenario, 1)


def test_declared_errors_and_waits_are_known_on_this_side() -> None:
    """What `raises=` names is matched by name, and `Retry-After` is read with the worker's clock."""
    import child_steps  # type: ignore[import-not-found]  # written by the fixture

    async def scenario(pool: ProcessPool) -> None:
        with pytest.raises(ChildError, match="DeclaredError: no") as declared:
            await call(pool, "fail", "declared")
        assert classify(declared.value, (child_steps.DeclaredError,)) is Kind.ANSWER
        assert classify(declared.value) is Kind.REFUSED
        alive = raise_as(declared.value.error, (child_steps.DeclaredError,))
        assert type(alive) is child_steps.DeclaredError
        assert alive.args == ("no",)
        with pytest.raises(ChildError) as slow:
            await call(pool, "fail", "slow")
        assert retry_after_s(slow.value, 1_767_323_045.0) == 30.0

    on_pool(scenario, 1)


def test_a_result_that_cannot_be_stored_is_an_error_of_the_step() -> None:
    """It names the path, and is never retried."""

    async def scenario(pool: ProcessPool) -> None:
        with pytest.raises(ChildError) as caught:
            await call(pool, "unstorable")
        assert caught.value.error.type == "NotStorable"
        assert classify(caught.value) is Kind.PERMANENT

    on_pool(scenario, 1)


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("child_steps", "absent", "finds no absent in module child_steps"),
        ("child_steps", "number", "not a plain function"),
        ("child_steps", "asynchronous", "not a plain function"),
        ("no_such_module", "f", "No module named 'no_such_module'"),
    ],
)
def test_a_step_that_the_child_cannot_find_is_a_mistake(module: str, name: str, message: str) -> None:
    """Never retried, and the message says what to do."""

    async def scenario(pool: ProcessPool) -> None:
        with pytest.raises(ChildError, match=message) as caught:
            await pool.run(module, name, codec.encode([[], {}]), INFO)
        assert classify(caught.value) is Kind.PERMANENT

    on_pool(scenario, 1)


def test_a_step_inside_a_function_is_refused_at_once() -> None:
    """No child can find it."""

    async def scenario(pool: ProcessPool) -> None:
        with pytest.raises(UsageError, match="top level"):
            await pool.run("child_steps", "outer.<locals>.inner", b"", INFO)
        assert pool.pids == []

    on_pool(scenario)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [("die", (3,), "exit code 3"), ("kill_itself", (), "SIGKILL"), ("leave_fork_and_die", (), "exit code 7")],
)
def test_a_child_that_dies_leaves_an_unknown_outcome(name: str, args: tuple[int, ...], message: str) -> None:
    """Even if something it forked holds its pipes open; the next call gets a fresh child."""

    async def scenario(pool: ProcessPool) -> None:
        before = await call(pool, "pid")
        with pytest.raises(ChildDied, match=message) as caught:
            await call(pool, name, *args)
        assert classify(caught.value) is Kind.UNKNOWN
        assert gone(before)
        assert await call(pool, "pid") != before

    on_pool(scenario, 1)


def test_a_child_that_died_while_idle_is_replaced() -> None:
    """Nothing was begun, so the call never notices."""

    async def scenario(pool: ProcessPool) -> None:
        before = await call(pool, "pid")
        end = os.pidfd_open(before)
        os.kill(before, signal.SIGKILL)
        wait_for_end(end)
        assert await call(pool, "pid") != before
        assert gone(before)

    on_pool(scenario, 1)


def test_cancelling_kills_the_child_and_what_it_started(tmp_path: Path) -> None:
    """P2: the whole process group; the next call gets a fresh child."""

    async def scenario(pool: ProcessPool) -> None:
        path = tmp_path / "pid"
        task = asyncio.ensure_future(call(pool, "spin_with_program", str(path)))
        pid = await written_pid(path)
        program = os.pidfd_open(await written_pid(tmp_path / "pid.program"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_gone(pid)
        wait_for_end(program)
        assert await call(pool, "pid") != pid
        assert pool.busy == 0

    on_pool(scenario, 1)


@pytest.mark.parametrize("name", ["spin", "spin_holding_the_lock"])
def test_a_timeout_kills_the_child(tmp_path: Path, name: str) -> None:
    """As any cancellation does."""

    async def scenario(pool: ProcessPool) -> None:
        path = tmp_path / "pid"
        task = asyncio.ensure_future(call(pool, name, str(path)))
        pid = await written_pid(path)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.01)
        await until_gone(pid)

    on_pool(scenario, 1)


def test_a_call_cancelled_while_it_waits_for_a_child_kills_nobody(tmp_path: Path) -> None:
    """And `on_start` tells that it was never begun."""

    async def scenario(pool: ProcessPool) -> None:
        path, began = tmp_path / "pid", list[str]()
        first = asyncio.ensure_future(call(pool, "spin", str(path)))
        pid = await written_pid(path)
        payload = codec.encode([[], {}])
        second = asyncio.ensure_future(
            pool.run("child_steps", "pid", payload, INFO, on_start=lambda: began.append("second"))
        )
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert began == []
        assert not first.done()
        assert pool.pids == [pid]
        first.cancel()
        await asyncio.wait([first])

    on_pool(scenario, 1)


def test_calls_cancelled_at_any_moment_leave_a_sound_pool() -> None:
    """Before, while and after the child starts and works; the pool answers as before."""

    async def scenario(pool: ProcessPool) -> None:
        for pause in (0.0, 0.0, 0.001, 0.002, 0.03, 0.2):
            tasks = [asyncio.ensure_future(call(pool, "add", n, 1)) for n in range(4)]
            await asyncio.wait(tasks, timeout=pause)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert pool.busy == 0
        assert await asyncio.gather(*(call(pool, "add", n, 1) for n in range(4))) == [1, 2, 3, 4]
        assert len(pool.pids) <= 2

    on_pool(scenario)


def test_big_payloads_cross_whole_and_too_big_ones_are_refused() -> None:
    """In both directions, with the sizes in the message."""
    length = 3_000_000

    async def scenario(pool: ProcessPool) -> None:
        assert await call(pool, "size", b"x" * length) == length
        assert await call(pool, "blob", length) == b"x" * length
        with pytest.raises(PayloadTooLarge, match=str(process_frames.frame_bytes_max)):
            await pool.run("child_steps", "size", bytes(process_frames.frame_bytes_max), INFO)
        with pytest.raises(ChildError) as caught:
            await call(pool, "blob", limits.payload_bytes_max)
        assert caught.value.error.type == "PayloadTooLarge"
        assert await call(pool, "add", 1) == 1

    on_pool(scenario, 1)


def test_the_child_has_its_own_group_and_ignores_the_workers_signals() -> None:
    """Ctrl-C is the worker's to act on; programs that a step starts have their own signals."""

    async def scenario(pool: ProcessPool) -> None:
        assert await call(pool, "group")
        assert await call(pool, "signals_ignored") == "[1, 1]"

    on_pool(scenario, 1)


def test_the_child_looks_like_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same `sys.path`, the environment as it was, no standard input, none of our arguments."""
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")

    async def scenario(pool: ProcessPool) -> None:
        assert await call(pool, "environment") == ["/of/the/user", sys.path, "", ["-c"]]

    on_pool(scenario, 1)


def test_what_a_step_prints_goes_where_the_workers_output_goes(capfd: pytest.CaptureFixture[str]) -> None:
    """At once, though the child lives on; and it never gets into the answers."""

    async def scenario(pool: ProcessPool) -> None:
        assert await call(pool, "say", "hello") is None
        assert capfd.readouterr() == ("hello\n", "hello\n")

    on_pool(scenario, 1)


def test_info_of_the_step_reaches_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook gets it before the step runs; the step reads it from its context."""
    (tmp_path / "boot.py").write_text(
        textwrap.dedent(
            """
            import contextvars, sys, types
            seen = contextvars.ContextVar("seen", default=None)
            hook = types.ModuleType("perdure.worker.step_context")
            hook.enter = seen.set
            hook.__spec__ = types.SimpleNamespace(name=hook.__name__)
            sys.modules[hook.__name__] = hook

            def info():
                return seen.get()
            """
        )
    )

    async def scenario(pool: ProcessPool) -> None:
        payload = codec.encode([[], {}])
        assert codec.decode(await pool.run("boot", "info", payload, INFO)) == INFO

    on_pool(scenario, 1)


def test_close_ends_calls_under_way_and_refuses_new_ones(tmp_path: Path) -> None:
    """Those under way are unknown outcomes; no child is left."""

    async def scenario(pool: ProcessPool) -> None:
        path = tmp_path / "pid"
        task = asyncio.ensure_future(call(pool, "spin", str(path)))
        pid = await written_pid(path)
        waiting = asyncio.ensure_future(call(pool, "pid"))
        await asyncio.sleep(0)
        pool.close()
        with pytest.raises(ChildDied):
            await task
        with pytest.raises(UsageError, match="closed"):
            await waiting
        await until_gone(pid)

    on_pool(scenario, 1)


def test_no_child_to_be_had_is_said_before_the_step_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that does not start, or starts and leaves: the step was not begun."""

    async def scenario(pool: ProcessPool) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/no/such/python")
            with pytest.raises(RetryLater, match="not begun"):
                await call(pool, "pid")
        with monkeypatch.context() as patch:
            patch.setattr(process_slots, "_BOOT", "raise SystemExit(9)")
            with pytest.raises(RetryLater, match="exit code 9"):
                await call(pool, "pid")
        assert await call(pool, "add", 1) == 1

    on_pool(scenario, 1)


def test_no_descriptors_leak() -> None:
    """A child's end gives back all that its start took."""

    async def scenario(pool: ProcessPool) -> None:
        with pytest.raises(ChildDied):
            await call(pool, "die", 1)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            with pytest.raises(ChildDied):
                await call(pool, "die", 1)
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    on_pool(scenario, 1)


PARENT = """
import asyncio, sys
from perdure.base import codec
from perdure.worker.processes import ProcessPool

async def main():
    payload = codec.encode([[sys.argv[1]], {}])
    await ProcessPool().run("child_steps", sys.argv[2], payload, {"run_id": "r", "key": "k", "attempt": 1, "step": "s"})

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["spin", "spin_holding_the_lock"])
def test_a_parent_that_is_killed_takes_its_child_along(tmp_path: Path, name: str) -> None:
    """D1: also a child that never looks up from its work."""
    path = tmp_path / "pid"
    command = [sys.executable, "-c", PARENT, str(path), name]
    with subprocess.Popen(command, env={"PYTHONPATH": ":".join(sys.path)}) as parent:
        child = os.pidfd_open(asyncio.run(asyncio.wait_for(written_pid(path), TOO_LONG_S)))
        parent.kill()
        wait_for_end(child)


def test_a_script_names_its_module_as_others_import_it(tmp_path: Path) -> None:
    """`__main__` is the script's name only in its own process."""
    script = tmp_path / "my_script.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio
            from perdure.base import codec
            from perdure.worker.processes import ProcessPool

            def double(n):
                return 2 * n

            async def main():
                pool = ProcessPool(1)
                info = {"run_id": "r", "key": "k", "attempt": 1, "step": "s"}
                payload = codec.encode([[21], {}])
                print(codec.decode(await pool.run(double.__module__, "double", payload, info)))
                pool.close()

            if __name__ == "__main__":
                asyncio.run(main())
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=TOO_LONG_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
