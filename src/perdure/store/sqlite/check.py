"""Integrity: everything that is wrong, in plain words.

S1. Structure, indexes, checksums, gaps, and what the tables say about each other.
"""

from __future__ import annotations

from typing import Final

import apsw

from perdure.base.records import Ended, decode_record
from perdure.base.status import ControlKind
from perdure.errors import StoreDamaged
from perdure.store.sqlite import journal
from perdure.store.sqlite.db import Db
from perdure.store.sqlite.rows import RUN, UNREADABLE, readable, run_row
from perdure.store.sqlite.workers import listing

_JOURNAL: Final = """
SELECT run, seq, CAST(count AS INTEGER), coalesce(CAST(body AS BLOB), x'') FROM journal ORDER BY run, seq"""
_KINDS: Final = "SELECT id, CAST(kind AS BLOB) FROM controls"
_PROBLEMS: Final = (
    (
        "SELECT DISTINCT run FROM journal WHERE run NOT IN (SELECT num FROM runs)",
        "records of run number {} exist, but no such run",
    ),
    (
        "SELECT DISTINCT run FROM controls WHERE run NOT IN (SELECT num FROM runs)",
        "requests for run number {} exist, but no such run",
    ),
    (
        "SELECT CAST(id AS BLOB) FROM runs WHERE worker IS NOT NULL AND worker NOT IN (SELECT num FROM workers)",
        "run '{}' is held by a worker that does not exist",
    ),
    ("SELECT CAST(id AS BLOB) FROM runs WHERE worker IS NOT NULL AND epoch < 1", "run '{}' is held without an epoch"),
    (
        "SELECT CAST(id AS BLOB) FROM runs WHERE status IN ('completed', 'failed', 'cancelled') AND ready_at IS NOT NULL",
        "run '{}' has ended and is ready all the same",
    ),
    (
        "SELECT CAST(id AS BLOB) FROM runs WHERE epoch < (SELECT max(epoch) FROM journal WHERE run = num)",
        "run '{}' has an epoch below that of its records",
    ),
)
# Runs that are open and to which nobody has said `retry`.
_OPEN: Final = """
SELECT num, CAST(id AS BLOB) FROM runs
WHERE status NOT IN ('completed', 'failed', 'cancelled') AND NOT EXISTS (
  SELECT 1 FROM controls WHERE run = num AND kind = 'retry')"""
FINDINGS_MAX: Final = 1_000


def check(db: Db) -> list[str]:
    found: list[str] = []
    try:
        found += [f"SQLite: {row[0]}" for row in db.execute("PRAGMA integrity_check(100)") if row[0] != "ok"]
    except (apsw.CorruptError, UnicodeDecodeError) as exc:
        found.append(f"SQLite: {exc}")
    if found:
        return found  # what the tables say is not worth reading then
    for row in db.execute(RUN):
        try:
            run_row(row)
        except StoreDamaged as exc:
            found.append(str(exc))
    found += [f"the row of worker {row.num} cannot be read" for row in listing(db) if row.info.name == UNREADABLE]
    kinds = {kind.value for kind in ControlKind}
    found += [f"request {num} cannot be read" for num, kind in db.execute(_KINDS) if readable(kind) not in kinds]
    ended: set[int] = set()
    found += _journals(db, ended)
    found += [
        f"run '{readable(run_id)}' is open and its journal has ended"
        for num, run_id in db.execute(_OPEN)
        if num in ended
    ]
    for sql, words in _PROBLEMS:
        found += [words.format(readable(row[0]) if type(row[0]) is bytes else row[0]) for row in db.execute(sql)]
    return found[:FINDINGS_MAX]


def _journals(db: Db, ended: set[int]) -> list[str]:
    """What is wrong in the journals; the runs whose last record is their end are put into `ended`."""
    found: list[str] = []
    current, expected = 0, 1
    for run, seq, count, row in db.execute(_JOURNAL):
        if run != current:
            current, expected = run, 1
        if seq != expected:
            found.append(f"run number {run}: record {expected} is missing")
        expected = seq + count
        try:
            records = journal.unpack(run, seq, count, row)
        except journal.Broken as broken:
            found.append(f"run number {run}: record {broken.seq} {broken.what}")
            continue
        ended.discard(run)
        for number, record in enumerate(records, seq):
            try:
                last = decode_record(record)
            except StoreDamaged as exc:
                found.append(f"run number {run}: record {number}: {exc}")
            else:
                if isinstance(last, Ended) and number == expected - 1:
                    ended.add(run)
    return found
