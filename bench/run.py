"""`make bench`: perdure against the raw disk and against its peers, side by side.

    python bench/run.py [--quick] [--only NAME …] [--json FILE]

Each figure is taken in rounds, together with the one it is compared to; see harness.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

import memory
import peers
import processes
import resume
import speed
import startup
from harness import TIMES, Options, Row, number, spread

Measure: TypeAlias = Callable[[Options], list[Row]]

MEASURES: dict[str, Measure] = {
    "sequential": speed.measure_sequential,
    "reads": speed.measure_reads,
    "throughput": speed.measure_throughput,
    "latency": speed.measure_latency,
    "resume": resume.measure,
    "dispatch": processes.measure_dispatch,
    "takeover": processes.measure_takeover,
    "idle": processes.measure_idle,
    "startup": startup.measure,
    "memory": memory.measure,
    "peers": peers.measure,
}
PACKAGES = ("perdure", "apsw", "uvloop", "dbos", "langgraph", "langgraph-checkpoint-sqlite")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round of everything, small; under two minutes")
    parser.add_argument("--only", action="append", choices=MEASURES, metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    given = parser.parse_args()
    options = Options(quick=given.quick, rounds=1 if given.quick else 5)
    print(_where(), flush=True)
    rows: list[Row] = []
    failed: list[str] = []
    for name in given.only or MEASURES:
        began = time.monotonic()
        try:
            made = MEASURES[name](options)
        except Exception as exc:  # noqa: BLE001  # one measure that fails must not take the others' figures with it
            failed.append(f"{name}: {exc}")
            print(f"{name}: FAILED after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            continue
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        rows += made
    _table(rows)
    for text in failed:
        print(f"\nFAILED {text}")
    if given.json:
        shown = {"where": _where(), "rows": [row.to_dict() for row in rows], "failed": failed}
        given.json.write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if failed else 0


def _where() -> str:
    found = [f"{name} {metadata.version(name)}" for name in PACKAGES if _installed(name)]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load}; {', '.join(found)}"


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _table(rows: list[Row]) -> None:
    heads = ["measure", "ours", "unit", "beside", "", "ratio", "middle half", "goal", ""]
    lines = [[*_cells(row)] for row in rows]
    widths = [max(len(line[n]) for line in [heads, *lines]) for n in range(len(heads))]
    right = {1, 4, 5}
    print()
    for line in [heads, ["─" * width for width in widths], *lines]:
        cells = [cell.rjust(widths[n]) if n in right else cell.ljust(widths[n]) for n, cell in enumerate(line)]
        print("  ".join(cells).rstrip())
    judged = [row for row in rows if row.met is not None]
    print(f"\n{sum(bool(row.met) for row in judged)} of {len(judged)} goals met")


def _cells(row: Row) -> list[str]:
    half = spread(row.ratios) if row.beside else spread(row.samples)
    return [
        row.measure,
        number(row.ours),
        row.unit,
        row.against,
        number(row.other) if row.beside else "",
        f"{number(row.ratio)}{TIMES}" if row.ratio is not None else "",
        f"{number(half[0])} … {number(half[1])}" if half else "",
        " and ".join(goal.text() for goal in row.goals),
        row.note or {None: "", True: "met", False: "NOT MET"}[row.met],
    ]


if __name__ == "__main__":
    sys.exit(main())
