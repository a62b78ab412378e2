"""Outside agent code the hooks change nothing."""

from __future__ import annotations

import asyncio
import copy
import inspect
import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections import OrderedDict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.errors import HiddenState
from perdure.kernel.guard import hooks, marks
from perdure.kernel.guard.marks import marked


def refused(fn, *args):
    marks.enter()
    try:
        fn(*args)
    except HiddenState:
        return True
    finally:
        marks.leave()
    return False


def read_clock():
    return time.time()


def test_install_twice_wraps_once():
    """A second install changes nothing."""
    before = time.time, os.urandom, random.Random.seed
    hooks.install()
    assert (time.time, os.urandom, random.Random.seed) == before


def test_unmarked_thread_is_never_affected():
    """What agent code may not do, other code does as before."""
    assert time.time() > 0
    assert uuid.uuid4() != uuid.uuid4()
    assert os.environ["PATH"] == os.getenv("PATH")
    assert random.Random() is not None
    assert Path("/").stat().st_mode == Path("/").lstat().st_mode
    assert time.strftime("%Y", time.gmtime(0)) == "1970"
    assert len(time.strftime("%Y")) == 4


def test_other_threads_are_never_affected_while_one_runs_agent_code():
    """Steps run in other threads at the same time, on ordinary loops, and may do everything."""
    got = []

    async def step():
        await asyncio.sleep(0)
        return time.time(), os.environ["PATH"], await asyncio.to_thread(uuid.uuid4)

    def work():
        with Path(os.devnull).open() as file:
            got.extend([file.read(), *asyncio.run(step())])

    thread = threading.Thread(target=work)
    released = threading.Event()
    entered = threading.Event()

    def agent():
        marks.enter()
        entered.set()
        released.wait()
        try:
            time.time()
        except HiddenState as exc:
            got.append(exc)
        finally:
            marks.leave()

    marked_thread = threading.Thread(target=agent)
    marked_thread.start()
    entered.wait()
    thread.start()
    thread.join()
    released.set()
    marked_thread.join()
    assert len(got) == 5
    assert isinstance(got[-1], HiddenState)


def test_marks_nest():
    """A thread is free when it has left as often as it has entered."""
    marks.enter()
    marks.enter()
    marks.leave()
    try:
        with pytest.raises(HiddenState):
            time.time()
    finally:
        marks.leave()
    assert time.time() > 0
    assert marked == []


def test_paused_lets_the_runtime_work():
    """Inside `paused` everything goes; behind it the guard holds again, at the same depth."""
    marks.enter()
    marks.enter()
    try:
        with marks.paused(), Path(os.devnull).open() as file:
            assert file.read() == ""
        with pytest.raises(HiddenState):
            Path(os.devnull).read_text()
        assert len(marked) == 2
    finally:
        marks.leave()
        marks.leave()


def test_paused_ends_with_an_error_too():
    """An error inside `paused` does not leave the guard open."""
    marks.enter()
    try:
        with pytest.raises(KeyError), marks.paused():
            raise KeyError
        assert len(marked) == 1
    finally:
        marks.leave()


def test_a_forked_child_is_unmarked():
    """A process forked while agent code runs in some thread starts without marks."""
    marks.enter()
    try:
        with marks.paused():
            marked.append(-1)
            reading, writing = multiprocessing.get_context("fork").Pipe(duplex=False)
            child = multiprocessing.get_context("fork").Process(target=lambda: writing.send(list(marked)))
            child.start()
            assert reading.recv() == []
            child.join()
            marked.remove(-1)
    finally:
        marks.leave()


@pytest.mark.parametrize(
    "name", ["time.time", "time.strftime", "random.random", "random.choice", "os.getpid", "uuid.uuid4"]
)
def test_stand_ins_look_and_pickle_like_what_they_stand_for(name):
    """Name and doc stay, `__wrapped__` is the original, copies and pickles give the same object."""
    module, _, attribute = name.partition(".")
    fn = getattr(sys.modules[module], attribute)
    original = inspect.unwrap(fn)
    assert original is not fn
    assert fn.__name__ == original.__name__ == attribute
    assert fn.__doc__ == original.__doc__
    assert pickle.loads(pickle.dumps(fn)) is fn
    assert copy.deepcopy(fn) is fn


def test_datetime_is_itself_outside_agent_code():
    """`now` and `utcnow` give what they gave: of the class they are asked of, in the zone they are given."""

    class Mine(datetime):
        pass

    assert type(Mine.now()) is type(Mine.utcnow()) is Mine
    assert type(datetime.now()) is type(datetime(2026, 1, 2).now()) is datetime
    assert datetime.now(tz=UTC).tzinfo is datetime.now(UTC).tzinfo is UTC
    assert isinstance(copy.copy(datetime.now)(UTC), datetime)
    assert str(inspect.signature(datetime.now)) == "(tz=None)"
    with pytest.raises(TypeError, match="tzinfo"):
        datetime.now("UTC")


def test_a_builtin_kept_on_a_class_stays_a_function():
    """Builtins do not become methods, and neither do their stand-ins."""

    class Timer:
        clock = time.monotonic
        draw = random.random
        process = os.getpid

    timer = Timer()
    assert timer.clock() > 0
    assert 0 <= timer.draw() < 1
    assert timer.process() == os.getpid()


def test_shutil_keeps_its_safe_way():
    """`os.stat` stays among the functions that support file descriptors."""
    assert os.stat in os.supports_dir_fd
    assert os.stat in os.supports_follow_symlinks
    install = "import sys; from perdure.kernel.guard import hooks; hooks.install()"
    code = f"{install}; import shutil; sys.exit(not shutil.rmtree.avoids_symlink_attacks)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert shutil.rmtree.avoids_symlink_attacks
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0


def test_environment_still_works_as_a_mapping():
    """Set, read, list and delete, outside agent code."""
    os.environ["GUARDED"] = "1"
    assert "GUARDED" in os.environ
    assert OrderedDict(os.environ)["GUARDED"] == os.environ.copy()["GUARDED"] == "1"
    assert os.environ.setdefault("GUARDED", "2") == "1"
    assert os.environ.pop("GUARDED") == "1"
    assert os.getenv("GUARDED") is None


def test_seeded_randomness_is_unchanged():
    """The module's generator and seeded ones give the values they always gave."""
    random.seed(7)
    first = random.random(), random.randint(1, 10)
    random.seed(7)
    assert (random.random(), random.randint(1, 10)) == first
    assert random.Random(7).random() == first[0]


def test_what_the_runtime_does_for_itself_is_not_refused():
    """A frame of the runtime between the agent and the call makes it the runtime's own."""
    from perdure.kernel.guard import frames

    source = "def runtime(fn):\n    return fn()\n"
    namespace = {}
    exec(compile(source, frames.__file__.replace("frames", "pretended"), "exec"), namespace)
    assert not refused(namespace["runtime"], time.time)
    assert refused(namespace["runtime"], read_clock)


@pytest.mark.parametrize(("kind", "expected"), [("async def", True), ("def", False)])
def test_a_librarys_coroutine_in_the_run_is_the_agents_doing(tmp_path, kind, expected):
    """A task made of a library's coroutine is refused with the library's line; a plain call is the runtime's."""
    from perdure.kernel.guard import frames

    library = str(tmp_path / "site-packages" / "lib.py")
    namespace = {"time": time}
    exec(compile(f"{kind} work():\n    return time.time()\n", library, "exec"), namespace)
    runtime = "def runtime(work):\n    made = work()\n    if hasattr(made, 'send'):\n        made.send(None)\n"
    exec(compile(runtime, frames.__file__.replace("frames", "pretended"), "exec"), namespace)
    marks.enter()
    try:
        namespace["runtime"](namespace["work"])
        found = None
    except HiddenState as exc:
        found = exc
    except StopIteration:
        found = None
    finally:
        marks.leave()
    assert (found is not None) is expected
    if found is not None:
        assert (found.file, found.line) == (library, 2)


def test_a_librarys_function_called_by_the_agent_is_named_with_the_agents_line(tmp_path):
    """The line is the agent's, the message says what it called and what that calls."""
    namespace = {"uuid4": uuid.uuid4, "__name__": "lib"}
    exec(compile("def make():\n    return uuid4()\n", str(tmp_path / "site-packages" / "lib.py"), "exec"), namespace)
    marks.enter()
    try:
        with pytest.raises(HiddenState) as found:
            namespace["make"]()
    finally:
        marks.leave()
    assert found.value.file == __file__
    assert "lib.make(), which uses uuid.uuid4()," in str(found.value)
    assert "run.uuid()" in str(found.value)
