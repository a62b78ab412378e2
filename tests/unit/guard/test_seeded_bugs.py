"""A6: one small file for each kind of hidden state. Each is refused, with the line marked BAD and the remedy."""

# ruff: noqa: E501  # each case is a small file, written on as few lines as it can be read on
from __future__ import annotations

import pytest

BOTH, SCAN, RUN = "scan and run", "scan", "run"


def agent(body: str, head: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{head}\n\nasync def agent():\n{lines}\n"


# fmt: off
BUGS = {
    # the clock
    "time.time": (BOTH, "time.time()", "run.now()", agent("return time.time()  # BAD", "import time")),
    "time.time as a name": (BOTH, "time.time()", "run.now()", agent("return time()  # BAD", "from time import time")),
    "perf_counter as pc": (BOTH, "perf_counter", "run.now()", agent("x = 1\nreturn pc()  # BAD", "from time import perf_counter as pc")),
    "monotonic_ns": (BOTH, "monotonic_ns", "run.now()", agent("return time.monotonic_ns()  # BAD", "import time")),
    "module under another name": (BOTH, "time.time", "run.now()", agent("return clock.time()  # BAD", "import time as clock")),
    "localtime without argument": (BOTH, "time.localtime", "run.now()", agent("return time.localtime()  # BAD", "import time")),
    "strftime of now": (BOTH, "strftime", "run.now()", agent("return time.strftime('%Y')  # BAD", "import time")),
    "import in the agent": (BOTH, "time.time", "run.now()", agent("import time\nreturn time.time()  # BAD")),
    "name imported in the agent": (BOTH, "time.time", "run.now()", agent("from time import time as t\nreturn t()  # BAD")),
    "datetime.now, class": (BOTH, "datetime.datetime.now()", "run.now()", agent("return datetime.now()  # BAD", "from datetime import datetime")),
    "datetime.now, module": (BOTH, "datetime.datetime.now()", "run.now()", agent("return datetime.datetime.now()  # BAD", "import datetime")),
    "datetime.now, alias": (BOTH, "datetime.datetime.now()", "run.now()", agent("return dt.datetime.now(dt.UTC)  # BAD", "import datetime as dt")),
    "datetime.now, in the agent": (BOTH, "datetime.datetime.now()", "run.now()", agent("from datetime import datetime\nreturn datetime.now()  # BAD")),
    "datetime.now, bound": (BOTH, "datetime.datetime.now()", "run.now()", agent("return now()  # BAD", "from datetime import datetime\nnow = datetime.now")),
    "datetime.now, subclass": (BOTH, "datetime.datetime.now()", "run.now()", agent("return Mine.now()  # BAD", "from datetime import datetime\nclass Mine(datetime): pass")),
    "datetime.now, partial": (BOTH, "datetime.datetime.now()", "run.now()", agent("return now()  # BAD", "from datetime import datetime, UTC\nfrom functools import partial\nnow = partial(datetime.now, UTC)")),
    "datetime.utcnow": (BOTH, "datetime.datetime.utcnow()", "run.now()", agent("return datetime.utcnow()  # BAD", "from datetime import datetime")),
    "date.today": (BOTH, "datetime.date.today()", "run.now()", agent("return date.today()  # BAD", "from datetime import date")),
    "datetime.today": (BOTH, "today()", "run.now()", agent("return datetime.today()  # BAD", "from datetime import datetime")),
    "datetime.now, behind getattr": (RUN, "datetime.datetime.now()", "run.now()", agent("return getattr(datetime, 'now')()  # BAD", "from datetime import datetime")),
    "datetime.now, local name": (RUN, "datetime.datetime.now()", "run.now()", agent("clock = datetime\nreturn clock.now()  # BAD", "from datetime import datetime")),
    "datetime.now, property": (RUN, "datetime.datetime.now()", "run.now()", agent("job = Job()\nreturn job.age", "from datetime import datetime\nclass Job:\n    @property\n    def age(self):\n        return datetime.now()  # BAD")),
    "datetime.now, method": (RUN, "datetime.datetime.now()", "run.now()", agent("job = Job()\nreturn job.age()", "from datetime import datetime\nclass Job:\n    def age(self):\n        return datetime.now()  # BAD")),
    "datetime.now, operator": (RUN, "datetime.datetime.now()", "run.now()", agent("return f'{Job()}'", "from datetime import datetime\nclass Job:\n    def __str__(self):\n        return str(datetime.now())  # BAD")),
    "datetime.now, in a table": (RUN, "datetime.datetime.now()", "run.now()", agent("return TABLE['now']()  # BAD", "from datetime import datetime\nTABLE = {'now': datetime.now}")),
    "time.sleep": (BOTH, "time.sleep", "asyncio.sleep", agent("time.sleep(0)  # BAD", "import time")),
    # places in the code
    "helper function": (BOTH, "time.time", "run.now()", agent("return helper()", "import time\ndef helper():\n    return time.time()  # BAD")),
    "helper of a helper": (BOTH, "now()", "run.now()", agent("return [outer() for _ in 'ab']", "from datetime import datetime\ndef outer():\n    return inner()\ndef inner():\n    return datetime.now()  # BAD")),
    "helper passed on": (BOTH, "time.time", "run.now()", agent("return sorted([2, 1], key=helper)", "import time\ndef helper(x):\n    return time.time()  # BAD")),
    "decorated helper": (BOTH, "time.time", "run.now()", agent("return helper()", "import time, functools\n@functools.cache\ndef helper():\n    return time.time()  # BAD")),
    "context manager": (BOTH, "time.time", "run.now()", agent("with helper():\n    pass", "import time, contextlib\n@contextlib.contextmanager\ndef helper():\n    yield time.time()  # BAD")),
    "nested function": (BOTH, "time.time", "run.now()", agent("def inner():\n    return time.time()  # BAD\nreturn inner()", "import time")),
    "nested function, import outside": (BOTH, "now()", "run.now()", agent("from datetime import datetime\ndef inner():\n    return datetime.now()  # BAD\nreturn inner()")),
    "lambda": (BOTH, "time.time", "run.now()", agent("f = lambda: time.time()  # BAD\nreturn f()", "import time")),
    "comprehension": (BOTH, "time.time", "run.now()", agent("return [\n    time.time()  # BAD\n    for _ in 'ab'\n]", "import time")),
    "generator expression": (BOTH, "now()", "run.now()", agent("return list(datetime.now() for _ in 'ab')  # BAD", "from datetime import datetime")),
    "kept, called later": (BOTH, "time.time", "run.now()", agent("table = {'now': time.time}; table['now']()  # BAD", "import time")),
    "argument of a step": (BOTH, "time.time", "run.now()", agent("return await keep(time.time())  # BAD", "import time\n@step\ndef keep(x):\n    return x")),
    "class of the user's": (BOTH, "uuid4", "run.uuid()", agent("return Note().id", "from uuid import uuid4\nclass Note:\n    def __init__(self):\n        self.id = uuid4()  # BAD")),
    "default factory": (SCAN, "Note.at", "run.now()", agent("return Note('x')  # BAD", "from dataclasses import dataclass, field\nfrom datetime import datetime\n@dataclass\nclass Note:\n    text: str\n    at: datetime = field(default_factory=datetime.now)")),
    "default factory, pydantic": (SCAN, "Note.at", "run.now()", agent("return Note(text='x')  # BAD", "from pydantic import BaseModel, Field\nfrom datetime import datetime\nclass Note(BaseModel):\n    text: str\n    at: datetime = Field(default_factory=datetime.now)")),
    "default factory, msgspec": (SCAN, "Note.at", "run.now()", agent("return Note('x')  # BAD", "import msgspec\nfrom datetime import datetime\nclass Note(msgspec.Struct):\n    text: str\n    at: datetime = msgspec.field(default_factory=datetime.now)")),
    "over several lines": (BOTH, "time.time", "run.now()", agent("return (\n    1\n    + time.time()  # BAD\n)", "import time")),
    "one branch": (SCAN, "time.time", "run.now()", agent("if FLAG:\n    return time.time()  # BAD", "import time\nFLAG = False")),
    # randomness and ids
    "random.random": (BOTH, "random.random", "run.random", agent("return random.random()  # BAD", "import random")),
    "random as a name": (BOTH, "random.random", "run.random", agent("return random()  # BAD", "from random import random")),
    "choice": (BOTH, "random.choice", "run.random", agent("return choice('ab')  # BAD", "from random import choice")),
    "shuffle": (BOTH, "random.shuffle", "run.random", agent("random.shuffle([1, 2])  # BAD", "import random")),
    "generator of the module": (SCAN, "generator made outside", "run.random", agent("return rng.random()  # BAD", "import random\nrng = random.Random()")),
    "seeded generator of the module": (SCAN, "generator made outside", "run.random", agent("return rng.choice('ab')  # BAD", "import random\nrng = random.Random(1)")),
    "seeded generator of the module, under a local name": (SCAN, "generator made outside", "run.random", agent("mine = rng  # BAD\nreturn mine.choice('ab')", "import random\nrng = random.Random(1)")),
    "seeded generator of the module, passed on": (SCAN, "generator made outside", "run.random", agent("return helper(rng)  # BAD", "import random\nrng = random.Random(1)\ndef helper(source):\n    return source.random()")),
    "generator without seed": (BOTH, "random.Random", "run.random", agent("return random.Random()  # BAD", "import random")),
    "generator seeded with None": (RUN, "random.Random", "run.random", agent("return random.Random(None)  # BAD", "import random")),
    "SystemRandom": (BOTH, "random.SystemRandom", "run.random", agent("return SystemRandom().random()  # BAD", "from random import SystemRandom")),
    "secrets": (BOTH, "secrets.token_hex", "run.random", agent("return secrets.token_hex()  # BAD", "import secrets")),
    "os.urandom": (BOTH, "os.urandom", "run.random", agent("return urandom(4)  # BAD", "from os import urandom")),
    "uuid4": (BOTH, "uuid.uuid4", "run.uuid()", agent("return uuid.uuid4()  # BAD", "import uuid")),
    "uuid4 as a name": (BOTH, "uuid.uuid4", "run.uuid()", agent("return str(uuid4())  # BAD", "from uuid import uuid4")),
    "uuid1": (BOTH, "uuid.uuid1", "run.uuid()", agent("return uuid.uuid1()  # BAD", "import uuid")),
    "numpy.random, not imported": (SCAN, "numpy.random.rand()", "run.random", agent("import numpy as np\nreturn np.random.rand()  # BAD")),
    "numpy.default_rng without seed": (SCAN, "numpy.random.default_rng()", "run.random", agent("from numpy.random import default_rng\nreturn default_rng()  # BAD")),
    # environment
    "os.environ": (BOTH, "os.environ", "argument", agent("return os.environ['PATH']  # BAD", "import os")),
    "environ as a name": (BOTH, "os.environ", "argument", agent("return environ.get('PATH')  # BAD", "from os import environ")),
    "environ passed on": (BOTH, "os.environ", "argument", agent("return dict(os.environ)  # BAD", "import os")),
    "environ written": (BOTH, "os.environ", "argument", agent("os.environ['NOT_KEPT'] = 'x'  # BAD", "import os")),
    "environ behind a parameter": (RUN, "os.environ", "argument", "import os\ndef agent(env=os.environ):\n    return 'PATH' in env  # BAD\n"),
    "getenv": (BOTH, "os.getenv", "argument", agent("return getenv('PATH')  # BAD", "from os import getenv")),
    "getpid": (BOTH, "os.getpid", "argument", agent("return os.getpid()  # BAD", "import os")),
    "getcwd": (BOTH, "os.getcwd", "argument", agent("return os.getcwd()  # BAD", "import os")),
    "cpu_count": (BOTH, "os.cpu_count", "argument", agent("return os.cpu_count()  # BAD", "import os")),
    "sys.argv": (SCAN, "sys.argv", "argument", agent("return sys.argv[1:]  # BAD", "import sys")),
    # files
    "open": (BOTH, "open", "@step", agent("with open('/etc/hostname') as f:  # BAD\n    return f.read()")),
    "Path.read_text": (RUN, "/etc/hostname", "@step", agent("return Path('/etc/hostname').read_text()  # BAD", "from pathlib import Path")),
    "Path of the module": (BOTH, "Path.read_text", "@step", agent("return CONFIG.read_text()  # BAD", "from pathlib import Path\nCONFIG = Path('/etc/hostname')")),
    "Path.exists": (RUN, "Path.exists", "@step", agent("return Path('/etc/hostname').exists()  # BAD", "from pathlib import Path")),
    "os.path.exists": (BOTH, "exists", "@step", agent("return os.path.exists('/')  # BAD", "import os")),
    "os.listdir": (BOTH, "os.listdir", "@step", agent("return os.listdir('/')  # BAD", "import os")),
    "tempfile": (BOTH, "tempfile", "@step", agent("tempfile.NamedTemporaryFile()  # BAD", "import tempfile")),
    "shutil.rmtree": (BOTH, "rmtree", "@step", agent("shutil.rmtree('/not/there')  # BAD", "import shutil")),
    "opener behind getattr": (RUN, "open", "@step", agent("getattr(__builtins__, 'get', None)('open')('/etc/hostname')  # BAD")),
    "sqlite3": (BOTH, "sqlite3.connect", "@step", agent("sqlite3.connect(':memory:')  # BAD", "import sqlite3")),
    # network
    "socket": (BOTH, "socket", "@step", agent("socket.socket()  # BAD", "import socket")),
    "getaddrinfo": (BOTH, "getaddrinfo", "@step", agent("socket.getaddrinfo('localhost', 1)  # BAD", "import socket")),
    "urlopen": (BOTH, "urllib.request.urlopen", "@step", agent("urllib.request.urlopen('http://127.0.0.1:9')  # BAD", "import urllib.request")),
    "requests, not installed": (SCAN, "requests.get()", "@step", agent("import requests\nreturn requests.get('http://127.0.0.1:9')  # BAD")),
    "httpx name, not installed": (SCAN, "httpx.AsyncClient()", "@step", agent("from httpx import AsyncClient\nasync with AsyncClient() as client:  # BAD\n    pass")),
    "open_connection": (SCAN, "asyncio.open_connection()", "@step", agent("await asyncio.open_connection('h', 1)  # BAD", "import asyncio")),
    # processes and threads
    "subprocess.run": (BOTH, "subprocess.run", "@step", agent("subprocess.run(['true'])  # BAD", "import subprocess")),
    "os.system": (BOTH, "os.system", "@step", agent("os.system('true')  # BAD", "import os")),
    "os.fork": (BOTH, "os.fork", "@step", agent("os.fork()  # BAD", "import os")),
    "create_subprocess_exec": (SCAN, "asyncio.create_subprocess_exec()", "@step", agent("await asyncio.create_subprocess_exec('true')  # BAD", "import asyncio")),
    "Thread": (BOTH, "Thread", "@step", agent("threading.Thread(target=print).start()  # BAD", "import threading")),
    "Thread as a name": (BOTH, "Thread", "@step", agent("Thread(target=print).start()  # BAD", "from threading import Thread")),
    "ThreadPoolExecutor": (SCAN, "ThreadPoolExecutor()", "@step", agent("with ThreadPoolExecutor() as pool:  # BAD\n    pass", "from concurrent.futures import ThreadPoolExecutor")),
    "pool of the module": (BOTH, "submit", "@step", agent("pool.submit(print)  # BAD", "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor()")),
    "to_thread": (SCAN, "asyncio.to_thread()", "@step", agent("await asyncio.to_thread(print)  # BAD", "import asyncio")),
    "run_in_executor": (SCAN, "run_in_executor", "@step", agent("loop = asyncio.get_running_loop()\nloop.run_in_executor(None, print)  # BAD", "import asyncio")),
    "run_in_executor, one line": (SCAN, "run_in_executor", "@step", agent("asyncio.get_running_loop().run_in_executor(None, print)  # BAD", "import asyncio")),
    "multiprocessing": (SCAN, "multiprocessing", "@step", agent("multiprocessing.Process(target=print)  # BAD", "import multiprocessing")),
    "multiprocessing name": (SCAN, "multiprocessing", "@step", agent("Pool(2)  # BAD", "from multiprocessing import Pool")),
    # what runs would share
    "lock of the module": (SCAN, "asyncio.Lock made outside", "inside the agent", agent("async with lock:  # BAD\n    pass", "import asyncio\nlock = asyncio.Lock()")),
    "semaphore of the module, in a helper": (SCAN, "asyncio.BoundedSemaphore made outside", "inside the agent", agent("await helper()", "import asyncio\nlimit = asyncio.BoundedSemaphore(2)\nasync def helper():\n    async with limit:  # BAD\n        pass")),
    "event of the module": (SCAN, "asyncio.Event made outside", "inside the agent", agent("return event.is_set()  # BAD", "import asyncio\nevent = asyncio.Event()")),
    "queue of an object of the module": (SCAN, "asyncio.Queue made outside", "inside the agent", agent("hub.queue.put_nowait(1)  # BAD", "import asyncio\nclass Hub: pass\nhub = Hub()\nhub.queue = asyncio.Queue()")),
    "queue of a class": (SCAN, "asyncio.PriorityQueue made outside", "inside the agent", agent("Hub.queue.put_nowait(1)  # BAD", "import asyncio\nclass Hub:\n    queue = asyncio.PriorityQueue()")),
    "counter of the module": (SCAN, "itertools.count made outside", "inside the agent", agent("return next(ids)  # BAD", "import itertools\nids = itertools.count()")),
    "generator of the module, half used": (SCAN, "generator made outside", "inside the agent", agent("return next(ids)  # BAD", "ids = (n for n in range(9))")),
    # people
    "input": (BOTH, "input", "run.ask", agent("return input('?')  # BAD")),
}
# fmt: on

# Where the hook sees a deeper call than the one that is written.
AS_RUN = {
    "secrets": "secrets.token_hex",
    "pool of the module": "submit",
    "date.today": "time.time",
    "datetime.today": "time.time",
}


def line_of(source: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if "# BAD" in line)


def assert_named(refused, module, what, remedy, source):
    assert refused is not None, "not found"
    line = line_of(source)
    assert (refused.file, refused.line) == (module.__file__, line)
    first = str(refused).splitlines()[0]
    assert first.startswith(f"{module.__file__}:{line}: ")
    assert what in first
    assert remedy in first


@pytest.mark.parametrize("name", [name for name, (by, *_) in BUGS.items() if by != RUN])
def test_seeded_bug_is_named_before_the_agent_runs(agent_file, found_by_scan, name):
    """The scan of the agent's code names file, line, what was called, and the remedy."""
    _, what, remedy, source = BUGS[name]
    module = agent_file(source)
    assert_named(found_by_scan(module.agent), module, what, remedy, source)


@pytest.mark.parametrize("name", [name for name, (by, *_) in BUGS.items() if by != SCAN])
def test_seeded_bug_is_refused_when_it_runs(agent_file, found_by_run, name):
    """The hooks name file, line, what was called, and the remedy, however the code came to call it."""
    _, what, remedy, source = BUGS[name]
    module = agent_file(source)
    refused = found_by_run(module.agent)
    assert_named(refused, module, AS_RUN.get(name, what).removesuffix("()"), remedy, source)


def test_all_findings_are_listed(agent_file, found_by_scan):
    """One error names every place, the first one as its own."""
    module = agent_file(
        agent(
            "a = time.time()\nb = random.random()\nreturn helper()",
            "import time, random, uuid\ndef helper():\n    return uuid.uuid4()",
        )
    )
    refused = found_by_scan(module.agent)
    assert "time.time" in str(refused).splitlines()[0]
    assert [part in str(refused) for part in ("random.random", "uuid.uuid4", "run.random", "run.uuid()")] == [True] * 4


def test_bug_in_another_file_of_the_user_is_named_there(agent_file, found_by_scan, found_by_run):
    """A helper beside the agent's file is the user's code as well: the line is the helper's."""
    helper = agent_file("import time\ndef now():\n    return time.time()\n", name="guarded_helper_beside")
    module = agent_file(agent("return guarded_helper_beside.now()", "import guarded_helper_beside"))
    for refused in (found_by_scan(module.agent), found_by_run(module.agent)):
        assert (refused.file, refused.line) == (helper.__file__, 3)


def test_an_agent_that_passed_is_not_scanned_again(agent_file, found_by_scan):
    """The scan is paid once for each function; a refused one is refused again."""
    clean = agent_file("def agent():\n    return helper()\ndef helper():\n    return 1\n")
    assert found_by_scan(clean.agent) is None
    clean.helper = agent_file("import time\ndef helper():\n    return time.time()\n").helper
    assert found_by_scan(clean.agent) is None
    bad = agent_file(agent("return time.time()", "import time"))
    assert found_by_scan(bad.agent) is not None
    assert found_by_scan(bad.agent) is not None


def test_an_agent_object_is_scanned_like_its_function(agent_file, found_by_scan):
    """What `@agent` makes stands for the function in it."""

    class Agent:
        __perdure_agent__ = True

    made = Agent()
    made.__wrapped__ = agent_file(agent("return time.time()", "import time")).agent
    assert found_by_scan(made) is not None


def test_the_error_says_where_what_why_and_what_to_do(agent_file, found_by_scan):
    """The whole message, as a user reads it."""
    module = agent_file(agent("return pc()", "from time import perf_counter as pc"))
    assert str(found_by_scan(module.agent)) == (
        f"{module.__file__}:4: agent code uses pc(), which is time.perf_counter(), outside a step, in agent(). "
        "Refused: the clock reads differently when the run is resumed. "
        "Instead: use run.now(), or read the clock in a @step."
    )


@pytest.mark.parametrize("debug_ranges", [True, False])
def test_found_without_column_positions_too(agent_file, found_by_scan, debug_ranges):
    """Code compiled without columns (`-X no_debug_ranges`) is scanned as far as names go."""
    module = agent_file(agent("return time.time()", "import time"))
    if not debug_ranges:
        code = module.agent.__code__
        module.agent.__code__ = code.replace(co_linetable=_lines_only(code))
    refused = found_by_scan(module.agent)
    assert refused is not None
    assert refused.line == 4


def _lines_only(code) -> bytes:
    """The location table with each entry in its form without columns (kind 13), as the compiler writes it."""
    table = bytearray()
    line = code.co_firstlineno
    for start, end, at in code.co_lines():
        units = (end - start) // 2
        while units > 0:
            width = min(units, 8)
            delta = (at or line) - line
            line = at or line
            table.append(0x80 | (13 << 3) | (width - 1))
            signed = (-delta << 1) | 1 if delta < 0 else delta << 1
            while signed > 63:
                table.append(0x40 | (signed & 63))
                signed >>= 6
            table.append(signed)
            units -= width
    return bytes(table)
