"""What this connection has verified about a worker's runs and nobody can have changed since.

L1. A fact from here is used only inside a write transaction in which SQLite's data version still says that no other
    connection has committed
since the fact was read. So it is as good as reading it again, and five lookups in a cold cache cheaper (a fifth of a
commit, measured).

What this connection changes itself is kept up by `append`; verbs that take runs away or leave requests start afresh
(`store.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.store.contract import RunWrite
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.journal import ROW_BYTES


class Fact:
    """A run that the worker holds, and the journal's row that grows with it."""

    __slots__ = ("count", "due", "epoch", "newest_control", "pos", "row")

    def __init__(self, epoch: int, due: int, newest_control: int) -> None:
        self.epoch = epoch
        self.due = due  # the number of its next record
        self.newest_control = newest_control
        self.pos = 0  # where its last row lies; 0: the next records begin a new one
        self.row = b""
        self.count = 0

    def grows(self, pos: int, row: bytes, count: int) -> None:
        """Its last row is this from now on."""
        if len(row) < ROW_BYTES:
            self.pos, self.row, self.count = pos, row, count
        elif self.pos:
            self.pos, self.row = 0, b""

    def suffices(self, write: RunWrite) -> bool:
        """Is `write` the next one of a run that is held, with no newer control in its way?"""
        if self.epoch != write.epoch or self.due != write.seq:
            return False
        return write.unless_control is None or self.newest_control <= write.unless_control


class Known:
    __slots__ = ("db", "foreign_version", "mark", "runs", "version", "worker")

    def __init__(self, foreign_version: Callable[[Db], int]) -> None:
        self.foreign_version = foreign_version
        self.db: Db | None = None
        self.version = -1
        self.worker = -1  # a registered worker
        self.mark = 0  # the control mark
        self.runs: dict[int, Fact] = {}

    def confirm(self, db: Db, worker: int) -> bool:
        """Are the facts about `worker` still true? If not they are forgotten. Call it in a write transaction."""
        version: int = self.foreign_version(db)
        if version == self.version and db is self.db and worker == self.worker:
            return True
        self.db, self.version, self.worker = db, version, -1
        self.runs.clear()
        return False
