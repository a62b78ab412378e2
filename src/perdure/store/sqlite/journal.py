"""The journal: append-only, in log order, read per run.

J1. A record once committed is never changed: there is no UPDATE and no DELETE here.
S1. Reading checks order, gaps and checksums.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from perdure.errors import StoreDamaged
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.rows import MASK, SPREAD, record_sum

# One record.
INSERT: Final = "INSERT INTO journal (run, seq, epoch, sum, body) VALUES (?, ?, ?, ?, ?)"
# Two records of one run: the usual append (a result and the next decision) in one statement.
INSERT_TWO: Final = "INSERT INTO journal (run, seq, epoch, sum, body) VALUES (?1, ?2, ?3, ?4, ?5), (?1, ?6, ?3, ?7, ?8)"
# A run's records from a number on.
_READ: Final = "SELECT seq, sum, body FROM journal WHERE run = ? AND seq > ? ORDER BY seq"
# What is stored from a number on, with who wrote it: to recognise a write that was committed unseen.
_STORED: Final = "SELECT epoch, body FROM journal WHERE run = ? AND seq >= ? ORDER BY seq LIMIT ?"
# The number of a run's last record.
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM journal WHERE run = ?"
# The latest heartbeat of each step.
_PULSES: Final = "SELECT position, at, details FROM pulses WHERE run = ?"


def read(db: Db, num: int, after: int) -> list[bytes]:
    bodies: list[bytes] = []
    expected = after
    for seq, stored_sum, body in db.execute(_READ, (num, after)):
        expected += 1
        if seq != expected:
            raise damaged(db, num, expected, "is missing")
        if stored_sum != record_sum(num, seq, body):
            raise damaged(db, num, seq, "does not match its checksum")
        bodies.append(body)
    return bodies


def damaged(db: Db, num: int, seq: int, what: str) -> StoreDamaged:
    run = db.execute("SELECT id FROM runs WHERE num = ?", (num,)).get
    return StoreDamaged(
        f"the journal of run {run!r} (number {num}) is damaged: record {seq} {what}. "
        "The run is not continued, because an effect might repeat; restore a backup"
    )


def last(db: Db, num: int) -> int:
    seq: int = db.execute(_LAST, (num,)).get
    return seq


def matching(db: Db, num: int, epoch: int, seq: int, records: list[bytes]) -> int | None:
    """How many of `records` are stored already from `seq` on, written at that epoch; None if something else is."""
    count = 0
    for stored_epoch, body in db.execute(_STORED, (num, seq, len(records))):
        if stored_epoch != epoch or body != records[count]:
            return None
        count += 1
    return count


def add(db: Db, num: int, epoch: int, seq: int, records: list[bytes]) -> None:
    if len(records) == 2:
        first, second = records
        salt = num * SPREAD + seq
        sums = crc32(first, salt & MASK), crc32(second, (salt + 1) & MASK)  # as `record_sum`, on the way of every step
        db.execute(INSERT_TWO, (num, seq, epoch, sums[0], first, seq + 1, sums[1], second))
    elif len(records) == 1:
        db.execute(INSERT, (num, seq, epoch, record_sum(num, seq, records[0]), records[0]))
    elif records:
        db.executemany(INSERT, [(num, n, epoch, record_sum(num, n, body), body) for n, body in enumerate(records, seq)])


def pulses(db: Db, num: int) -> dict[int, tuple[float, bytes | None]]:
    return {position: (at, details) for position, at, details in db.execute(_PULSES, (num,))}
