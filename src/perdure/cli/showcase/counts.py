"""What reached the world, read from the ledger's own file: nothing here is taken from the runtime."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Counts:
    """`calls` and `applied` name each thing as often as it was asked for, and as often as it happened."""

    calls: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()

    def doubled(self, wanted: set[str]) -> int:
        return sum(self.applied.count(what) - 1 for what in wanted & set(self.applied))

    def lost(self, wanted: set[str]) -> int:
        return len(wanted - set(self.applied))

    def of(self, wanted: set[str]) -> int:
        """How many of the calls were for these."""
        return sum(what in wanted for what in self.calls)


def read(file: Path) -> Counts:
    """A last line that is still being written is left for the next look."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    entries = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return Counts(
        calls=tuple(entry["name"] for entry in entries if entry["what"] == "called"),
        applied=tuple(entry["name"] for entry in entries if entry["what"] == "applied"),
    )
