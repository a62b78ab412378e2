"""The journal: a run's records in order, several to a row.

J1. A record once committed is never changed. The last row of a run may be rewritten with more behind it, by the worker that wrote it; nothing is
    ever taken out.
S1. Reading checks order, gaps and checksums, record by record.

A row grows until it is `ROW_BYTES` long. Growing touches the one page the row lies on, a new row an index page too: that is a tenth of a
sequential step, and a third of the transaction where a hundred runs write side by side. Things that don't work: a row for each record (the above);
no index, but a table of where each run's records lie (faster for a few runs, slower for a thousand, and nothing refuses a number that is taken).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final
from zlib import crc32

from perdure.errors import StoreDamaged
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.rows import MASK, SPREAD, readable

ROW_BYTES: Final = 512

# A new row, at a place that was asked for: the next ones follow it.
INSERT: Final = "INSERT INTO journal (pos, run, seq, count, epoch, at, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
# The last row of a run with more behind it.
GROW: Final = "UPDATE journal SET body = ?2, count = ?3, at = ?4 WHERE pos = ?1"
_LAST_POS: Final = "SELECT coalesce(max(pos), 0) FROM journal"
# A run's rows from the one on that holds a number.
_READ: Final = """
SELECT seq, count, epoch, body FROM journal
WHERE run = ?1 AND seq >= coalesce((SELECT max(seq) FROM journal WHERE run = ?1 AND seq <= ?2), 0) ORDER BY seq"""
# The same, the newest first, whatever kind its columns are of.
_BACKWARDS: Final = """
SELECT seq, CAST(count AS INTEGER), coalesce(CAST(body AS BLOB), x'') FROM journal
WHERE run = ?1 AND seq >= coalesce((SELECT max(seq) FROM journal WHERE run = ?1 AND seq <= ?2), 0) ORDER BY seq DESC"""
# The number of a run's last record.
_LAST: Final = "SELECT seq + count - 1 FROM journal WHERE run = ? ORDER BY seq DESC LIMIT 1"
# The latest heartbeat of each step.
_PULSES: Final = "SELECT position, at, details FROM pulses WHERE run = ?"

# Before each record: its length and its checksum.
_HEAD: Final = Struct(">II")


class Broken(Exception):  # never leaves this package
    """A row is not what was written."""

    def __init__(self, seq: int, what: str) -> None:
        self.seq = seq
        self.what = what


# Rows


def pack(run: int, seq: int, records: list[bytes]) -> bytes:
    """Records one behind the other, as a row holds them. The checksum covers run and number too."""
    salt = run * SPREAD + seq
    pack_head = _HEAD.pack
    if len(records) == 2:  # the usual append: a result and the next decision
        first, second = records
        head = pack_head(len(first), crc32(first, salt & MASK))
        return b"".join((head, first, pack_head(len(second), crc32(second, (salt + 1) & MASK)), second))
    parts: list[bytes] = []
    for number, record in enumerate(records, salt):
        parts += pack_head(len(record), crc32(record, number & MASK)), record
    return b"".join(parts)


def unpack(run: int, seq: int, count: int, row: bytes) -> list[bytes]:
    """The records of a row, checked. Raises `Broken`."""
    records: list[bytes] = []
    at, end, salt = 0, len(row), run * SPREAD + seq
    head_bytes, unpack_head = _HEAD.size, _HEAD.unpack_from
    while at < end and len(records) < count:
        if at + head_bytes > end:
            break
        length, checksum = unpack_head(row, at)
        at += head_bytes
        record = row[at : at + length]
        if crc32(record, salt & MASK) != checksum or len(record) != length:
            raise Broken(seq + len(records), "does not match its checksum")
        records.append(record)
        at += length
        salt += 1
    if len(records) != count or at != end:
        raise Broken(seq + len(records), "is not whole")
    return records


def last_pos(db: Db) -> int:
    """Where the newest row lies. Call it in a write transaction; what is behind it is free."""
    pos: int = db.execute(_LAST_POS).get
    return pos


# One run


def read(db: Db, num: int, after: int) -> list[bytes]:
    found: list[bytes] = []
    for seq, _, records in _rows(db, num, after):
        found += records if seq > after else records[after + 1 - seq :]
    return found


def _rows(db: Db, num: int, after: int) -> Iterator[tuple[int, int, list[bytes]]]:
    """First number, epoch and records of a run's rows from the one on that holds the number after `after`, checked."""
    due = 0
    try:
        for seq, count, epoch, row in db.execute(_READ, (num, after + 1)):
            due = due or min(seq, after + 1)
            if seq != due:
                raise damaged(db, num, due, "is missing")
            due += count
            yield seq, epoch, unpack(num, seq, count, row)
    except Broken as broken:
        raise damaged(db, num, broken.seq, broken.what) from None
    except (TypeError, UnicodeDecodeError):  # a column is of another kind
        raise damaged(db, num, due or after + 1, "cannot be read") from None


def any_after(db: Db, num: int, after: int, wanted: Callable[[bytes], bool]) -> bool:
    """Is there a record of that kind after a number? What is damaged is none: whoever reads it will say so."""
    for seq, count, row in db.execute(_BACKWARDS, (num, after + 1)):
        try:
            records = unpack(num, seq, count, row)
        except Broken:
            continue
        if any(wanted(record) for number, record in enumerate(records, seq) if number > after):
            return True
    return False


def damaged(db: Db, num: int, seq: int, what: str) -> StoreDamaged:
    run = readable(db.execute("SELECT CAST(id AS BLOB) FROM runs WHERE num = ?", (num,)).get)
    return StoreDamaged(
        f"the journal of run {run!r} (number {num}) is damaged: record {seq} {what}. "
        "The run is not continued, because an effect might repeat; restore a backup"
    )


def last(db: Db, num: int) -> int:
    seq: int | None = db.execute(_LAST, (num,)).get
    return seq or 0


def matching(db: Db, num: int, epoch: int, seq: int, records: list[bytes]) -> int | None:
    """How many of `records` are stored already from `seq` on, written at that epoch; None if something else is."""
    stored: list[bytes] = []
    try:
        for first, by, row in _rows(db, num, seq - 1):
            if by != epoch:
                return None
            stored += row[max(0, seq - first) :]
            if len(stored) >= len(records):
                break
    except StoreDamaged:
        return None
    count = min(len(stored), len(records))
    return count if stored[:count] == records[:count] else None


def add(db: Db, num: int, epoch: int, seq: int, records: list[bytes], now: float) -> None:
    """A row of its own for these records."""
    db.execute(INSERT, (last_pos(db) + 1, num, seq, len(records), epoch, now, pack(num, seq, records)))


def pulses(db: Db, num: int) -> dict[int, tuple[float, bytes | None]]:
    return {position: (at, details) for position, at, details in db.execute(_PULSES, (num,))}
