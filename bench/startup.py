"""What a fresh process pays before its first line of work: imports."""

from __future__ import annotations

import subprocess
import sys
import time

from harness import Goal, Options, Row

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import perdure": ["-c", "import perdure"],
    "from perdure import": ["-c", "from perdure import Perdure, agent, run, step"],
    "perdure --help": ["-m", "perdure.cli.main", "--help"],
}


def measure(options: Options) -> list[Row]:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.of(15, 4)):
        for name, words in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
            taken[name].append((time.perf_counter() - started) * 1e3)
    bare, package, names, help_page = taken.values()
    extra = [[a - b for a, b in zip(whole, bare, strict=True)] for whole in (package, names)]
    return [
        Row("import perdure, without Python's own start", "ms", extra[0], "python -c pass", bare, (Goal(120.0),)),
        Row("  from perdure import Perdure, agent, run, step", "ms", extra[1], "python -c pass", bare, (Goal(120.0),)),
        Row("perdure --help, all of it", "ms", help_page, "python -c pass", bare, (Goal(200.0),)),
    ]
