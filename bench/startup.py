"""What a fresh process pays before its first line of work: imports.

Bytecode is there, as it is after `pip install`, whatever this machine's environment says about writing it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import harness
from harness import Goal, Options, Row

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import perdure": ["-c", "import perdure"],
    "from perdure import": ["-c", "from perdure import Perdure, agent, run, step"],
    "perdure --help": ["-m", "perdure.cli.main", "--help"],
}


def measure(options: Options) -> list[Row]:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with harness.folder(in_memory=True) as bytecode:
        for name in COMMANDS:
            _ms(name, bytecode)  # compiles
        for _ in range(options.of(15, 4)):
            for name, times in taken.items():
                times.append(_ms(name, bytecode))
    bare, package, names, help_page = taken.values()
    extra = [[a - b for a, b in zip(whole, bare, strict=True)] for whole in (package, names)]
    return [
        Row("import perdure, without Python's own start", "ms", extra[0], "python -c pass", bare, (Goal(120.0),)),
        Row("  from perdure import Perdure, agent, run, step", "ms", extra[1], "python -c pass", bare, (Goal(120.0),)),
        Row("perdure --help, all of it", "ms", help_page, "python -c pass", bare, (Goal(200.0),)),
    ]


def _ms(name: str, bytecode: Path) -> float:
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode)}
    started = time.perf_counter()
    subprocess.run([sys.executable, *COMMANDS[name]], stdout=subprocess.DEVNULL, check=True, env=env)
    return (time.perf_counter() - started) * 1e3
