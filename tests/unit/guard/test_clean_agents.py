"""False alarms are bugs as much as misses: these agents pass the scan, and run."""

# ruff: noqa: E501, ISC004  # each case is a small file, written on as few lines as it can be read on
from __future__ import annotations

import pytest

CLEAN = {
    "json, re, text": (
        "import json, re, textwrap, string",
        "return json.loads(json.dumps(re.findall('a', 'banana'))), textwrap.dedent(' x')",
    ),
    "hashes": (
        "import base64, hashlib, hmac, secrets",
        "return hashlib.sha256(b'x').hexdigest(), secrets.compare_digest('a', 'a')",
    ),
    "logging": (
        "import io, logging\nlog = logging.getLogger('guarded')\nhandler = logging.StreamHandler(io.StringIO())\n"
        "handler.setFormatter(logging.Formatter('%(asctime)s %(process)d %(message)s'))\nlog.addHandler(handler)\nlog.propagate = False",
        "log.warning('hello %s', 1)\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    log.exception('failed')",
    ),
    "logging to a file opened late": (
        "import logging, os\nlog = logging.getLogger('guarded.file')\nlog.propagate = False\n"
        "handler = logging.FileHandler(os.devnull, delay=True)\nlog.addHandler(handler)",
        "log.warning('hello')\nhandler.close()",
    ),
    "logging formatter of the user's": (
        "import io, logging, time\nclass Mine(logging.Formatter):\n    def format(self, record):\n        return f'{time.time()} {record.msg}'\n"
        "log = logging.getLogger('guarded.mine')\nlog.propagate = False\nhandler = logging.StreamHandler(io.StringIO())\n"
        "handler.setFormatter(Mine())\nlog.addHandler(handler)",
        "log.warning('hello')",
    ),
    "traceback": (
        "import linecache, traceback",
        "linecache.clearcache()\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    return traceback.format_exc() + ''.join(traceback.format_stack())",
    ),
    "warnings": (
        "import warnings",
        "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    warnings.warn('x')",
    ),
    "print": ("", "print('hello', flush=True)"),
    "dataclasses made inside": (
        "from dataclasses import dataclass, replace, asdict",
        "@dataclass\nclass P:\n    x: int = 1\nreturn asdict(replace(P(), x=2))",
    ),
    "named tuples and enums made inside": (
        "import enum, collections",
        "P = collections.namedtuple('P', 'x')\nE = enum.Enum('E', 'A B')\nreturn P(1), E.A",
    ),
    "models made inside": (
        "from pydantic import BaseModel",
        "class M(BaseModel):\n    x: int = 1\nreturn M(x='2').model_dump()",
    ),
    "decimal and fractions": (
        "from decimal import Decimal\nfrom fractions import Fraction\nimport statistics",
        "return Decimal('1.1') * 2, Fraction(1, 3), statistics.mean([1, 2])",
    ),
    "copy and pprint": ("import copy, pprint", "return copy.deepcopy({'a': [1]}), pprint.pformat({'a': 1})"),
    "inspect": ("import inspect", "return inspect.signature(agent), inspect.getsource(agent)"),
    "imports inside": (
        "",
        "import colorsys\nimport xml.etree.ElementTree as ET\nfrom email.message import EmailMessage\nreturn ET.fromstring('<a/>').tag",
    ),
    "imports that read the clock": ("", "import guarded_reads_clock\nreturn guarded_reads_clock.AT"),
    "importlib.metadata": ("from importlib.metadata import version", "return version('pytest')"),
    "seeded generator": (
        "import random",
        "rng = random.Random(1)\nrng.shuffle([1, 2])\nreturn rng.random(), random.Random(x=2).choice('ab')",
    ),
    "generator copied": ("import copy, random", "return copy.deepcopy(random.Random(1)).random()"),
    "numpy with a seed": (
        "",
        "def later():\n    import numpy as np\n    return np.random.default_rng(1).normal(), np.random.Generator(np.random.PCG64(1))\nreturn later",
    ),
    "datetime arithmetic": (
        "import datetime as dt\nfrom datetime import date, datetime, timedelta, UTC",
        "at = datetime.fromisoformat('2026-01-02T03:04:05+00:00') + timedelta(days=1)\n"
        "return at.strftime('%Y'), datetime.fromtimestamp(0, UTC), dt.datetime.combine(date(2026, 1, 2), dt.time()), datetime.max, date.fromisoformat('2026-01-02'), datetime.strptime('2026', '%Y')",
    ),
    "time zones": (
        "from datetime import datetime, UTC\nimport zoneinfo",
        "zoneinfo.ZoneInfo.clear_cache(only_keys=['Europe/Berlin'])\ntry:\n    return datetime(2026, 1, 2, tzinfo=UTC).astimezone(zoneinfo.ZoneInfo('Europe/Berlin'))\nexcept zoneinfo.ZoneInfoNotFoundError:\n    pass",
    ),
    "conversions of a given time": (
        "import time",
        "return time.gmtime(0), time.strftime('%Y', time.gmtime(0)), time.ctime(0), time.asctime(time.localtime(0)), time.struct_time",
    ),
    "uuids of given data": (
        "import uuid",
        "return uuid.UUID(int=1), uuid.uuid5(uuid.NAMESPACE_URL, 'x'), uuid.UUID(hex='0' * 32)",
    ),
    "paths as text": (
        "import os\nfrom pathlib import Path, PurePath",
        "return Path('a') / 'b', PurePath('a').suffix, os.path.join('a', 'b'), os.path.splitext('a.b'), os.sep",
    ),
    "urls": ("from urllib.parse import quote, urlsplit", "return quote('a b'), urlsplit('http://h/p')"),
    "text files in memory": ("import csv, io", "return list(csv.reader(io.StringIO('a,b'))), io.BytesIO(b'x').read()"),
    "constants and exceptions": (
        "import socket, sqlite3, subprocess, threading, concurrent.futures",
        "try:\n    pass\nexcept (subprocess.CalledProcessError, sqlite3.Error, OSError, socket.timeout, concurrent.futures.TimeoutError):\n    pass\n"
        "return isinstance(1, threading.Thread | subprocess.Popen), subprocess.PIPE, socket.AF_INET",
    ),
    "exceptions of a package that is not there": (
        "",
        "def later():\n    import requests\n    try:\n        pass\n    except requests.HTTPError:\n        pass\nreturn later",
    ),
    "only for type checkers": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import requests",
        "x: requests.Session | None = None\nreturn x",
    ),
    "annotations": (
        "from __future__ import annotations\nimport threading\nfrom datetime import datetime",
        "def inner(at: datetime, thread: threading.Thread | None = None) -> datetime:\n    return at\nreturn inner(datetime(2026, 1, 2))",
    ),
    "annotations that are evaluated": (
        "import threading\nfrom datetime import datetime",
        "def inner(at: datetime, thread: threading.Thread | None = None) -> datetime:\n    return at\nreturn inner(datetime(2026, 1, 2))",
    ),
    "a step that reads the clock": ("import time\n@step\ndef clock():\n    return time.time()", "return await clock()"),
    "a step called time": ("import time as _time\n@step\ndef time():\n    return _time.time()", "return await time()"),
    "a step in the agent": ("import time", "@step\ndef clock():\n    return time.time()\nreturn await clock()"),
    "a step with options in the agent": (
        "import time",
        "@step(\n    effect='read',\n)\ndef clock():\n    return [time.time() for _ in 'ab']\nreturn await clock()",
    ),
    "a step made of a function": ("import time", "return await step(time.time)()"),
    "a step made of a function, with options": ("import time", "return await step(effect='read')(time.time)()"),
    "a step made of a lambda": (
        "import time, random",
        "return await step(\n    lambda: (time.time(), random.random())\n)()",
    ),
    "a step by its full name": (
        "import time, types\napi = types.ModuleType('perdure')\napi.step = step",
        "@api.step(effect='read')\ndef clock():\n    return time.time()\nreturn await clock()",
    ),
    "a step with an argument bound": (
        "import time, functools\n@step\ndef clock(x):\n    return time.time()\nclock.__wrapped__ = clock.fn\nbound = functools.partial(clock, 1)",
        "return await bound()",
    ),
    "a step that is a method": (
        "import time\nclass Service:\n    @step\n    def clock():\n        return time.time()\nservice = Service()",
        "return await service.clock()",
    ),
    "a step that opens a file": (
        "@step(effect='read')\ndef load(path):\n    with open(path) as f:\n        return f.read()",
        "return await load('/dev/null')",
    ),
    "a helper of a step": (
        "import time\ndef helper():\n    return time.time()\n@step\ndef clock():\n    return helper()",
        "return await clock()",
    ),
    "a helper that nobody calls": ("import time\ndef helper():\n    return time.time()", "return 1"),
    "another agent": (
        "import time\nclass Agent:\n    __perdure_agent__ = True\n    def __call__(self):\n        return time.time()\nother = Agent()",
        "return other",
    ),
    "the runtime's clock": (
        "class Run:\n    def now(self):\n        return 1.0\nRun.__module__ = 'perdure.api.run'\nrun = Run()",
        "return run.now()",
    ),
    "a local variable called random": (
        "import random as _\n",
        "random = [1]\ntime = {'time': 2}\nreturn random[0], time['time']",
    ),
    "a parameter called open": (
        "",
        "def inner(open, input=len):\n    return open('a') + input('b')\nreturn inner(len)",
    ),
    "own functions of such names": (
        "def open(x):\n    return x\ndef uuid4():\n    return 1\ndef input():\n    return 2",
        "return open(1), uuid4(), input()",
    ),
    "methods of such names": (
        "class Door:\n    def open(self):\n        return 1\n    def time(self):\n        return 2\n    def now(self):\n        return 3\ndoor = Door()",
        "return door.open(), door.time(), door.now(), Door().open()",
    ),
    "default factory not needed": (
        "from dataclasses import dataclass, field\nfrom datetime import datetime\n@dataclass\nclass Note:\n    text: str\n    at: datetime = field(default_factory=datetime.now)\n    tags: list = field(default_factory=list)",
        "at = datetime(2026, 1, 2)\nreturn Note('x', at), Note('x', at=at), Note(**{'text': 'x', 'at': at})",
    ),
    "default factory of a model not needed": (
        "from pydantic import BaseModel, Field\nfrom datetime import datetime\nclass Note(BaseModel):\n    at: datetime = Field(default_factory=datetime.now)",
        "return Note(at=datetime(2026, 1, 2))",
    ),
    "asyncio": (
        "import asyncio",
        "async def unused():\n    async with asyncio.TaskGroup() as group, asyncio.timeout(1):\n        group.create_task(asyncio.sleep(1))\n"
        "    await asyncio.gather(asyncio.wait_for(asyncio.sleep(1), 2), return_exceptions=True)\n    return asyncio.get_running_loop().time()\n"
        "return asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(2)",
    ),
    "locks and context": (
        "import contextvars, threading, queue\nlock = threading.Lock()",
        "with lock:\n    return contextvars.copy_context(), threading.get_ident(), queue.Queue().empty()",
    ),
    "a limit that steps share": (
        "import asyncio, itertools\nlimit = asyncio.Semaphore(2)\nids = itertools.count()\n"
        "@step\ndef limited():\n    return limit.locked(), next(ids)",
        "return await limited()",
    ),
    "locks and counters of its own": (
        "import asyncio, itertools\nasync def helper(lock, ids):\n    async with lock:\n        return next(ids)",
        "return await helper(asyncio.Lock(), itertools.count())",
    ),
    "objects that answer to every name": (
        "from unittest.mock import Mock\nanything = Mock()\nclass Lazy:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\nlazy = Lazy()",
        "return anything.open(), anything.environ, isinstance(lazy, str)",
    ),
}


def source_of(name: str) -> str:
    head, body = CLEAN[name]
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{head}\n\nasync def agent():\n{lines}\n"


@pytest.fixture
def clock_reader(tmp_path, monkeypatch):
    (tmp_path / "guarded_reads_clock.py").write_text("import os, time\nAT = time.time(), os.environ.get('HOME')\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", CLEAN)
def test_clean_agent_passes_the_scan(agent_file, found_by_scan, name):
    """Nothing is found in an agent that reads no hidden state."""
    assert found_by_scan(agent_file(source_of(name)).agent) is None


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", CLEAN)
def test_clean_agent_runs(agent_file, clock_reader, pump, name):
    """Nothing is refused while it runs."""
    pump(agent_file(source_of(name)).agent)


def test_finalizers_that_the_collector_starts_in_agent_code_are_not_refused(agent_file, pump):
    """They belong to whoever made the object; the collector runs them wherever it happens to start."""
    source = "import os, weakref\nSEEN = []\nclass Box:\n    def __del__(self):\n        SEEN.append(os.getpid())\n"
    source += "def note():\n    SEEN.append(os.getpid())\n"
    source += "def agent():\n    box = Box()\n    weakref.finalize(box, note)\n    del box\n"
    module = agent_file(source)
    pump(module.agent)
    assert len(module.SEEN) == 2
