"""What agent code may not use, why, and what to use instead.

G3. A banned name is refused when it is called or kept to be called later; a class only when it is called.

Refused before the agent runs (scan), in the agent and in the user's functions and classes that it names: the names
below, however they were imported, also behind `functools.partial` and in default factories of the user's classes;
generators made outside the agent (`rng = random.Random(1)` in a module: its state goes on over runs), clients and
pools made outside it, locks, queues and other objects of asyncio made outside it (a run that waits for another's lock
is never woken: its loop is quiet), and iterators made outside it that count or are half used.

Refused while it runs (hooks), wherever the call stands, libraries included: `datetime.now` and `date.today`; `time`,
`random`, `uuid` and `os` asked through their modules, `os.environ`, unseeded generators; files, folders and their state, sockets, processes, threads,
`input`, sqlite3, ctypes.

Allowed on purpose, because nothing of it comes back to the agent: print, logging, warnings, tracebacks, imports, time
zones, debuggers (the list stands in frames).

Not seen:
- builtins, and `datetime.now`, that code which the scan does not follow took by name before `install()`, what extension modules read or open by themselves;
- descriptors opened earlier (`os.read`), streams of the process (`sys.stdin` behind another name);
- clients of a module that an agent gets as an argument, and variables of a module that it changes; `sys.argv`
  and `platform` in libraries; `id()`, `hash()` of text.

Refused though it would do no harm: numpy's legacy `RandomState(seed)`, which draws from the system before it seeds (use
`default_rng(seed)`), `str()` of a pandas table (asks for the terminal's width), a `requests.Request` that is prepared.

What of these changes the steps that an agent asks for, the divergence check stops on replay (A7). What changes only
its result, nothing stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A reason for refusal, and the way out."""

    why: str
    instead: str


CLOCK = Kind("the clock reads differently when the run is resumed", "use run.now(), or read the clock in a @step")
SLEEP = Kind("it blocks the worker and is not recorded", "use `await asyncio.sleep(...)`, which survives restarts")
CHANCE = Kind("it draws other values when the run is resumed", "use run.random, or draw in a @step")
NAMES = Kind("it makes another id when the run is resumed", "use run.uuid()")
PLACE = Kind(
    "the run may be resumed in another process, where it reads differently",
    "pass it as an argument, or read it in a @step",
)
OUTSIDE = Kind("it would happen again, perhaps with another answer, when the run is resumed", "move it into a @step")
THREADS = Kind(
    "what other threads and processes do is not recorded",
    "move it into a @step (plain functions run in threads there) and start several with asyncio.gather",
)
SHARED = Kind(
    "all runs of the process share it, and what they do to it is not recorded",
    "make it inside the agent and pass it on; to limit what steps do together, use it in a @step",
)
ASKING = Kind("what was typed is not recorded", "use `await run.ask(...)`, or move it into a @step")


def _names(module: str, names: str) -> list[str]:
    return [f"{module}.{name}" for name in names.split()]


_BY_KIND: dict[Kind, list[str]] = {
    CLOCK: [
        *_names(
            "time", "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns"
        ),
        *_names("time", "thread_time thread_time_ns clock_gettime clock_gettime_ns"),
        *_names("time", "localtime gmtime ctime asctime strftime"),
        *_names("datetime", "datetime.now datetime.utcnow datetime.today date.today"),
        *_names("pandas", "Timestamp.now Timestamp.utcnow Timestamp.today"),
        *_names("pandas._libs.tslibs.timestamps", "Timestamp.now Timestamp.utcnow Timestamp.today"),
        *_names("pendulum", "now today tomorrow yesterday"),
        *_names("arrow.api", "now utcnow"),
        *_names("arrow", "now utcnow"),
        *_names("django.utils.timezone", "now localtime localdate"),
    ],
    SLEEP: _names("time", "sleep"),
    CHANCE: [
        *_names("random", "random uniform triangular randint choice randrange sample shuffle choices normalvariate"),
        *_names("random", "lognormvariate expovariate vonmisesvariate gammavariate gauss betavariate paretovariate"),
        *_names(
            "random", "weibullvariate binomialvariate getrandbits randbytes seed getstate setstate Random SystemRandom"
        ),
        *_names("os", "urandom getrandom"),
        *_names("secrets", "choice randbelow randbits token_bytes token_hex token_urlsafe SystemRandom"),
        *_names("numpy.random", "default_rng RandomState SeedSequence PCG64 PCG64DXSM MT19937 Philox SFC64"),
    ],
    NAMES: _names("uuid", "uuid1 uuid4 uuid6 uuid7 getnode"),
    PLACE: [
        *_names(
            "os", "getenv getenvb putenv unsetenv getcwd getcwdb getpid getppid cpu_count process_cpu_count getlogin"
        ),
        *_names("os", "getloadavg times environ environb sched_getaffinity"),
        *_names("sys", "argv"),
        *_names("platform", "node"),
        *_names("getpass", "getuser"),
        *_names("multiprocessing", "cpu_count BaseContext.cpu_count"),
        *_names("pathlib", "Path.cwd Path.home"),
        *_names("tempfile", "gettempdir mktemp"),
    ],
    OUTSIDE: [
        *_names("io", "open open_code FileIO"),
        *_names("sys", "stdin"),
        *_names(
            "os", "open listdir scandir walk fwalk stat lstat access readlink statvfs mkdir makedirs rmdir removedirs"
        ),
        *_names("os", "remove unlink rename renames replace link symlink truncate chmod chown chdir utime mkfifo pipe"),
        *_names("os", "system popen kill killpg fork forkpty execv execve execl execle execlp execvp execvpe"),
        *_names("os", "spawnl spawnv spawnlp spawnvp posix_spawn posix_spawnp wait waitpid _exit"),
        *_names(
            "os.path", "exists lexists isfile isdir islink ismount realpath getsize getmtime getatime getctime samefile"
        ),
        *_names("pathlib", "Path.open Path.read_text Path.read_bytes Path.write_text Path.write_bytes Path.exists"),
        *_names(
            "pathlib", "Path.is_file Path.is_dir Path.stat Path.iterdir Path.glob Path.rglob Path.mkdir Path.unlink"
        ),
        *_names("pathlib", "Path.rename Path.replace Path.rmdir Path.touch Path.resolve"),
        *_names("glob", "glob iglob"),
        *_names("shutil", "copy copy2 copyfile copyfileobj copytree copymode copystat move rmtree which disk_usage"),
        *_names("shutil", "make_archive unpack_archive chown"),
        *_names("tempfile", "mkstemp mkdtemp NamedTemporaryFile TemporaryFile TemporaryDirectory SpooledTemporaryFile"),
        *_names("subprocess", "run call check_call check_output Popen getoutput getstatusoutput"),
        *_names("asyncio", "create_subprocess_exec create_subprocess_shell open_connection open_unix_connection"),
        *_names("asyncio", "start_server start_unix_server"),
        *_names("socket", "socket create_connection create_server socketpair fromfd getaddrinfo gethostbyname"),
        *_names("socket", "gethostbyname_ex gethostbyaddr gethostname getfqdn getnameinfo"),
        *_names("urllib.request", "urlopen urlretrieve"),
        *_names("http.client", "HTTPConnection HTTPSConnection"),
        *_names("smtplib", "SMTP SMTP_SSL LMTP"),
        *_names("ftplib", "FTP FTP_TLS"),
        *_names("sqlite3", "connect"),
        *_names("webbrowser", "open open_new open_new_tab"),
    ],
    THREADS: [
        *_names("threading", "Thread Timer"),
        *_names("_thread", "start_new_thread start_new"),
        *_names("concurrent.futures", "ThreadPoolExecutor ProcessPoolExecutor InterpreterPoolExecutor"),
        *_names("asyncio", "to_thread run_coroutine_threadsafe run"),
        *_names("multiprocessing", "Process Pool Manager Queue Pipe get_context BaseContext.Process BaseContext.Pool"),
        *_names("multiprocessing", "BaseContext.Manager BaseContext.Queue BaseContext.Pipe BaseContext.get_context"),
        *_names("multiprocessing", "DefaultContext.get_context"),
        *_names("anyio.to_thread", "run_sync"),
        *_names("anyio.to_process", "run_sync"),
        *_names("anyio", "run_process open_process open_file connect_tcp"),
    ],
    ASKING: [*_names("builtins", "input"), *_names("getpass", "getpass unix_getpass win_getpass")],
}
BANNED: dict[str, Kind] = {name: kind for kind, names in _BY_KIND.items() for name in names}

UNDER: dict[str, Kind] = {
    # Methods of generators; the functions of `random` and `numpy.random` are such methods too.
    "random.Random.": CHANCE,
    "random.SystemRandom.": CHANCE,
    "numpy.random.mtrand.RandomState.": CHANCE,
    "numpy.random._generator.Generator.": CHANCE,
}

LOADED = {"os.environ", "os.environb", "sys.argv", "sys.stdin"}
"""Values, not functions: to touch them is to read them."""

ARGS_NEEDED = {
    "time.localtime": 1,
    "time.gmtime": 1,
    "time.ctime": 1,
    "time.asctime": 1,
    "time.strftime": 2,
    "random.Random": 1,
    **dict.fromkeys(
        _names("numpy.random", "default_rng RandomState SeedSequence PCG64 PCG64DXSM MT19937 Philox SFC64"), 1
    ),
}
"""With so many arguments these depend on nothing else, and are allowed."""

NUMPY_ALLOWED = {"Generator", "BitGenerator", "bit_generator", "mtrand"}
"""Names in `numpy.random` that draw nothing; all the others draw from one generator of the process."""

# Only these names of these packages: their exceptions, types and builders are plain values.
_VERBS = "get post put patch delete head options request stream"
CALLS: dict[str, frozenset[str]] = {
    package: frozenset(names.split())
    for package, names in {
        "requests": f"{_VERBS} Session session",
        "httpx": f"{_VERBS} Client AsyncClient",
        "aiohttp": "request ClientSession",
        "urllib3": "request PoolManager HTTPConnectionPool HTTPSConnectionPool",
        "websockets": "connect serve",
        "psycopg": "connect Connection AsyncConnection",
        "psycopg2": "connect",
        "asyncpg": "connect create_pool",
        "aiosqlite": "connect",
        "apsw": "Connection",
        "pymongo": "MongoClient AsyncMongoClient",
        "redis": "Redis from_url",
        "boto3": "client resource Session",
        "paramiko": "SSHClient",
        "openai": "OpenAI AsyncOpenAI AzureOpenAI AsyncAzureOpenAI",
        "anthropic": "Anthropic AsyncAnthropic",
    }.items()
}

CLIENTS = ("Client", "Session", "Pool", "PoolManager", "Connection", "Cursor", "Redis", "OpenAI", "Anthropic")
"""How the class names of long-lived clients in these packages end: to call a method of one is I/O."""

HELD: dict[str, Kind] = {
    "threading.Thread": THREADS,
    "concurrent.futures.ThreadPoolExecutor": THREADS,
    "concurrent.futures.ProcessPoolExecutor": THREADS,
    "subprocess.Popen": OUTSIDE,
    "socket.socket": OUTSIDE,
    "sqlite3.Connection": OUTSIDE,
    "sqlite3.Cursor": OUTSIDE,
}
"""Objects made outside the agent: to call a method of one is refused."""

ATTRIBUTES: dict[str, Kind] = {"run_in_executor": THREADS}
"""Refused whatever they are taken from: the object is known only when the agent runs."""

_HOMES = {
    "posix": "os",
    "nt": "os",
    "genericpath": "os.path",
    "posixpath": "os.path",
    "ntpath": "os.path",
    "_io": "io",
    "_pyio": "io",
    "_socket": "socket",
    "_random": "random",
    "_datetime": "datetime",
    "_pydatetime": "datetime",
    "_sqlite3": "sqlite3",
    "sqlite3.dbapi2": "sqlite3",
    "pathlib._local": "pathlib",
    "concurrent.futures.thread": "concurrent.futures",
    "concurrent.futures.process": "concurrent.futures",
    "multiprocessing.context": "multiprocessing",
    **dict.fromkeys(_names("asyncio", "threads streams subprocess tasks runners"), "asyncio"),
    **dict.fromkeys(
        _names("numpy.random", "_generator mtrand bit_generator _pcg64 _mt19937 _philox _sfc64"), "numpy.random"
    ),
}


def banned(module: str, name: str) -> tuple[str, Kind] | None:
    """The public name and the kind of ban of `name` in `module`, if there is one. `C.m` is method m of class C."""
    for full in _spellings(module, name):
        if kind := BANNED.get(full):
            return full, kind
        for prefix, kind in UNDER.items():
            if full.startswith(prefix):
                return full, kind
    root = module.partition(".")[0]
    if name in CALLS.get(root, ()):
        return f"{root}.{name}", OUTSIDE
    before, _, last = f"{module}.{name}".rpartition(".")
    if before == "numpy.random" and not last.startswith("_") and last not in NUMPY_ALLOWED:
        return f"{before}.{last}", CHANCE
    return None


def public(module: str, name: str) -> str:
    return f"{_HOMES.get(module, module)}.{name}"


def _spellings(module: str, name: str) -> Iterator[str]:
    yield f"{module}.{name}"
    if module in _HOMES:
        yield f"{_HOMES[module]}.{name}"
    if module == "builtins" and name == "open":
        yield "io.open"
