"""J2 as the kernel sees it: SIGKILL cannot show a missing fsync, so the system calls are looked at."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perdure.testing.crash import Job, Start

STEPS = 5


@pytest.mark.parametrize("style", ["async", "plain"])
def test_every_effect_waits_for_the_disk(case, style):
    """Between two effects, and before the first one, the store is synced at least once; and not more than once for each step."""
    calls = trace(case, Start("steps", "r", [case.book.url, STEPS, "idempotent", style]))
    assert case.counts() == (STEPS, STEPS)
    between = re.split("connect", "".join(calls))
    assert len(between) == STEPS + 1
    assert all("sync" in part for part in between), calls
    assert all(part.count("sync") == 1 for part in between[1:-1]), calls


def trace(case, start) -> list[str]:
    """Its syncs of the store and its connections to the ledger, in their order."""
    job = Job(modules=case.kit.modules, store=str(case.store), starts=[start], horizon_s=0.0)
    if case.broken:
        job = msgspec.structs.replace(job, prepare=f"{Path(__file__).parent}/mutants.py:{case.broken}")
    log = case.store.with_name("calls")
    command = ["strace", "-f", "-qq", "-y", "-o", str(log), "-e", "trace=fsync,fdatasync,connect", "--"]
    child = [sys.executable, "-m", "perdure.testing.crash_job", msgspec.json.encode(job).decode()]
    subprocess.run([*command, *child], check=True, capture_output=True)
    found = []
    for line in log.read_text().splitlines():
        if "resumed>" in line:
            continue
        if "sync(" in line and str(case.store) in line:
            found.append("sync ")
        elif "connect(" in line and "127.0.0.1" in line:
            found.append("connect ")
    return found
