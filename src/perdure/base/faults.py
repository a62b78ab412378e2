"""Named fault points: free until armed.

`PERDURE_FAULTS="append.before_commit:nth=3:kill"` kills this process with SIGKILL when that point is reached for the third time. Actions: `kill`,
`kill=0.01` (with that probability per pass; `seed=42` fixes it), `stop` (SIGSTOP to itself), `error` (raises `StoreUnavailable`). Several
faults are separated by `;`. A name ending in `*` fits all points that begin so. `at=publish` counts only passes about that step.

In code: `if faults.armed: faults.hit("append.before_commit")`.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from dataclasses import dataclass, field
from typing import Final

from perdure.errors import StoreUnavailable, UsageError

POINTS: Final[dict[str, str]] = {}
"""Every fault point: its name, and what has just happened there."""


def point(name: str, meaning: str) -> str:
    POINTS[name] = meaning
    return name


@dataclass
class _Fault:
    pattern: str
    action: str
    share: float = 1.0
    nth: int = 0
    seen: int = 0
    at: str = ""
    draw: random.Random = field(default_factory=random.Random)

    def fits(self, name: str, about: str) -> bool:
        if self.at and self.at != about:
            return False
        return name.startswith(self.pattern[:-1]) if self.pattern.endswith("*") else name == self.pattern

    def due(self) -> bool:
        self.seen += 1
        if self.nth:
            return self.seen == self.nth
        return self.share >= 1.0 or self.draw.random() < self.share


armed: list[_Fault] = []


def arm(spec: str) -> None:
    """Replace what is armed by the faults of `spec`; an empty text disarms."""
    armed[:] = [_parse(part) for part in spec.split(";") if part.strip()]


def hit(name: str, about: str = "") -> None:
    for fault in armed:
        if fault.fits(name, about) and fault.due():
            _strike(fault, name)


def _strike(fault: _Fault, name: str) -> None:
    match fault.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            # To this thread: sent to the process, another thread may take it while this one goes on for a moment.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case _:
            raise StoreUnavailable(f"fault injected at {name}")


def _parse(part: str) -> _Fault:
    pattern, *words = part.strip().split(":")
    fault = _Fault(pattern, "")
    for word in words:
        key, _, value = word.partition("=")
        try:
            match key:
                case "kill" | "stop" | "error":
                    fault.action = key
                    fault.share = float(value) if value else 1.0
                case "nth":
                    fault.nth = int(value)
                case "at":
                    fault.at = value
                case "seed":
                    fault.draw = random.Random(int(value))
                case _:
                    raise UsageError(
                        f"PERDURE_FAULTS: unknown word {word!r} in {part!r}. Use kill, stop, error, nth=, at=, seed="
                    )
        except ValueError as exc:
            raise UsageError(f"PERDURE_FAULTS: {word!r} needs a number") from exc
    if not fault.action:
        raise UsageError(f"PERDURE_FAULTS: {part!r} names no action. Use kill, stop or error")
    return fault


arm(os.environ.get("PERDURE_FAULTS", ""))
