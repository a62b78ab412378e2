"""The schema, as numbered steps forward.

S1. A file says whose it is (`application_id`) and how new (`user_version`); both change in the transaction that
    changes the tables.

A migration that was released is never edited: add the next one. A fresh file runs all of them, so there is only one
way to a schema.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


# "prdu"
APPLICATION_ID: Final = 0x70726475

# Worker numbers fence writes and run numbers name journals, so neither may be given out twice: AUTOINCREMENT. Control
# ids too: the mark must not go back.
_FIRST: Final = """
CREATE TABLE workers (
  num INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  pid_start INTEGER NOT NULL,
  agents TEXT NOT NULL,
  modules TEXT NOT NULL,
  started_at REAL NOT NULL,
  lease_until REAL NOT NULL,
  ttl_s REAL NOT NULL
) STRICT;

CREATE TABLE runs (
  num INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  agent TEXT NOT NULL,
  module TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  waiting_on TEXT,
  worker INTEGER,
  epoch INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  crashes INTEGER NOT NULL,
  crash_seq INTEGER NOT NULL,
  ready_at REAL,
  queue TEXT NOT NULL,
  priority INTEGER NOT NULL,
  tags TEXT NOT NULL,
  code TEXT,
  progress BLOB,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  input_sum INTEGER NOT NULL,
  end_sum INTEGER,
  input BLOB,
  result BLOB,
  error BLOB
) STRICT;

CREATE INDEX runs_by_status ON runs (status);
CREATE INDEX runs_held ON runs (worker) WHERE worker IS NOT NULL;
CREATE INDEX runs_ready ON runs (agent, priority DESC, ready_at) WHERE worker IS NULL AND ready_at IS NOT NULL;

CREATE TABLE inputs (
  run INTEGER PRIMARY KEY,
  body BLOB NOT NULL
) STRICT;

CREATE TABLE journal (
  pos INTEGER PRIMARY KEY,
  run INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  count INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  at REAL NOT NULL,
  body BLOB NOT NULL,
  UNIQUE (run, seq)
) STRICT;

CREATE TABLE pulses (
  run INTEGER NOT NULL,
  position INTEGER NOT NULL,
  at REAL NOT NULL,
  details BLOB,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE controls (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run INTEGER NOT NULL,
  kind TEXT NOT NULL,
  body BLOB NOT NULL,
  "by" TEXT NOT NULL,
  at REAL NOT NULL
) STRICT;

CREATE INDEX controls_by_run ON controls (run);

INSERT INTO sqlite_sequence (name, seq) VALUES ('controls', 0);
"""

MIGRATIONS: Final = (Migration(1, "first", _FIRST),)

SCHEMA_VERSION: Final = MIGRATIONS[-1].number

TABLES: Final = frozenset({"workers", "runs", "inputs", "journal", "pulses", "controls"})
