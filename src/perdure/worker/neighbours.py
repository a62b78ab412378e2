"""Who else works on this store, and are they alive? A process on the same machine is seen to be dead at once, whatever its lease."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from perdure.store.contract import WorkerInfo, WorkerRow


def this_process(name: str, agents: dict[str, str], modules: list[str]) -> WorkerInfo:
    pid = os.getpid()
    return WorkerInfo(
        name=name, host=host_identity(), pid=pid, pid_start=process_start(pid) or 0, agents=agents, modules=modules
    )


def host_identity() -> str:
    """Equal for two processes exactly if each sees the other's process ids: one boot, one pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{sys.platform}/{socket.gethostname()}"


def process_start(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None if there is no such process, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_without_proc(pid)
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    state, start = fields[0], int(fields[19])
    return None if state in "ZX" else start


def _start_without_proc(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0


def is_dead(worker: WorkerRow) -> bool:
    """Certainly dead: it ran where we can look, and it is not there any more. A frozen process is not dead."""
    info = worker.info
    if info.host != host_identity():
        return False
    return process_start(info.pid) != info.pid_start
