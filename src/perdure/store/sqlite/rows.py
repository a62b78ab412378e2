"""From rows to values, and checksums.

S1. What a row says is checked before anything acts on it: what never changes and what a run ended with against
    checksums, the rest by its form. Damage names the run.
S3. Damage is one row's matter: no query fails over a text of another row that is not UTF-8. So texts that may
    belong to many rows are read as bytes (`CAST … AS BLOB`), and decoded one by one.
"""

from __future__ import annotations

import json
import struct
from operator import itemgetter
from typing import Any, Final, cast
from zlib import crc32

import msgspec

from perdure.base.records import ErrorData
from perdure.base.status import ControlKind, Reason, Status
from perdure.errors import StoreDamaged
from perdure.store.contract import ControlRow, Progress, RunRow, WorkerInfo, WorkerRow

SPREAD: Final = 2_654_435_761  # prime: neighbouring runs and records get unrelated seeds
MASK: Final = 0xFFFF_FFFF
UNREADABLE: Final = "(unreadable)"  # the name of a worker whose row is damaged

encode = msgspec.msgpack.Encoder().encode
_progress = msgspec.msgpack.Decoder(Progress).decode
_error = msgspec.msgpack.Decoder(ErrorData).decode
_double: Final = struct.Struct(">d").pack

# Where whole numbers and times stand in a row.
_whole: Final = itemgetter(0, 11, 15, 16, 17, 18)
_times: Final = itemgetter(22, 23)

# A run with its last record: how a `RunRow` is read. The input is beside the row if it is long.
# Things that don't work: a join to the last record (eight times slower than looking it up twice).
RUN: Final = """
SELECT r.num, CAST(r.id AS BLOB), CAST(r.agent AS BLOB), CAST(r.module AS BLOB), CAST(r.status AS BLOB),
  CAST(r.reason AS BLOB), CAST(r.waiting_on AS BLOB),
  CAST(coalesce(r.input, (SELECT body FROM inputs WHERE run = r.num)) AS BLOB),
  CAST(r.result AS BLOB), CAST(r.error AS BLOB), CAST(r.queue AS BLOB), r.priority, CAST(r.tags AS BLOB), r.worker,
  CAST((SELECT name FROM workers WHERE num = r.worker) AS BLOB), r.epoch, r.attempt, r.crashes,
  coalesce((SELECT seq + count - 1 FROM journal WHERE run = r.num ORDER BY seq DESC LIMIT 1), 0), CAST(r.code AS BLOB),
  r.ready_at, CAST(r.progress AS BLOB), r.created_at, r.updated_at, r.input_sum, r.end_sum,
  coalesce((SELECT CAST(at AS REAL) FROM journal WHERE run = r.num ORDER BY seq DESC LIMIT 1), 0)
FROM runs r
"""


def input_sum(texts: tuple[bytes, bytes, bytes, bytes, bytes], priority: int, created_at: float, body: bytes) -> int:
    """Of all that never changes: id, agent, module, queue and tags, and the input."""
    return crc32(body, crc32(b"\0".join((*texts, b"%d" % priority, _double(created_at)))))


def end_sum(num: int, result: bytes | None, error: bytes | None) -> int | None:
    if result is None and error is None:
        return None
    return crc32(error or b"", crc32(result or b"", num & MASK) ^ (result is None))


def error_bytes(error: ErrorData | None) -> bytes | None:
    return None if error is None else encode(error)


def run_row(row: Any) -> RunRow:
    """A run, checked. `StoreDamaged` names it."""
    made = _run_row(row)
    texts = (row[1], row[2], row[3], row[10], row[12])
    if row[7] is None or row[24] != input_sum(texts, made.priority, made.created_at, made.input):
        raise damaged_run(made.id, "its input or its name does not match its checksum")
    if row[25] != end_sum(made.num, made.result, row[9]):
        raise damaged_run(made.id, "its result does not match its checksum")
    return made


def listed_row(row: Any) -> RunRow:
    """A run for a listing, where one damaged row must not hide the others: it shows as parked for `store`."""
    try:
        return run_row(row)
    except StoreDamaged:
        return RunRow(
            num=row[0],
            id=readable(row[1]),
            agent=readable(row[2]),
            module=readable(row[3]),
            status=Status.PARKED,
            reason=Reason.STORE,
            waiting_on=None,
            input=b"",
            result=None,
            error=None,
            queue=readable(row[10]),
            priority=_number(row[11], 0),
            tags={},
            worker=_number(row[13], None),
            worker_name=readable(row[14]) or None,
            epoch=_number(row[15], 0),
            attempt=_number(row[16], 0),
            crashes=_number(row[17], 0),
            seq=row[18],
            code=None,
            ready_at=None,
            progress=None,
            created_at=_number(row[22], 0.0),
            updated_at=_number(row[23], 0.0),
        )


def _run_row(row: Any) -> RunRow:
    try:
        if {*map(type, _whole(row))} != {int} or {*map(type, _times(row))} != {float}:
            raise ValueError("a number in it is none")
        return RunRow(
            num=row[0],
            id=row[1].decode(),
            agent=row[2].decode(),
            module=row[3].decode(),
            status=Status(row[4].decode()),
            reason=_text(row[5]),
            waiting_on=_text(row[6]),
            input=row[7] or b"",
            result=row[8],
            error=None if row[9] is None else _error(row[9]),
            queue=row[10].decode(),
            priority=row[11],
            tags={} if row[12] == b"{}" else cast("dict[str, str]", json.loads(row[12])),
            worker=row[13],
            worker_name=None if row[14] is None else readable(row[14]),
            epoch=row[15],
            attempt=row[16],
            crashes=row[17],
            seq=row[18],
            code=_text(row[19]),
            ready_at=row[20] if row[20] is None else float(row[20]),
            progress=None if row[21] is None else _progress(row[21]),
            created_at=row[22],
            updated_at=max(row[23], row[26]),
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as exc:
        raise damaged_run(readable(row[1]), f"its row cannot be read ({exc})") from exc


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def readable(data: bytes | None) -> str:
    """A text as well as it can be read."""
    return "" if data is None else data.decode("utf-8", "replace")


def _number(value: Any, otherwise: Any) -> Any:
    return value if type(value) in (int, float) else otherwise


def control_row(row: Any) -> ControlRow:
    """A request. One that cannot be read pauses its run until a person looks: nothing is done in its name (C1)."""
    num, run, kind, body, by, at = row
    try:
        return ControlRow(num, run, ControlKind(kind.decode()), body, readable(by), at)
    except (ValueError, AttributeError):
        return ControlRow(num, run, ControlKind.PAUSE, encode({}), readable(by), at)


def worker_row(row: Any) -> WorkerRow:
    """A worker. One whose row cannot be read is a stranger that serves nothing, to be buried when its lease is over."""
    try:
        info = WorkerInfo(row[1].decode(), row[2].decode(), row[3], row[4], json.loads(row[5]), json.loads(row[6]))
        if type(info.pid) is not int or type(info.pid_start) is not int:
            raise ValueError("a number in it is none")
    except (ValueError, TypeError, AttributeError, RecursionError):
        info = WorkerInfo(UNREADABLE, "", 0, 0, {}, [])
    return WorkerRow(row[0], info, row[7], row[8], row[9])


def damaged_run(run: str, what: str) -> StoreDamaged:
    return StoreDamaged(f"run {run!r} is damaged: {what}. Other runs go on; restore a backup to get this one back")


def text(value: Any) -> str:
    """JSON for the columns that SQL looks into."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
