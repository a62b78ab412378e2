"""From rows to values, and checksums.

S1. What a row says is checked against its checksum before anything acts on it; damage names the run.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast
from zlib import crc32

import msgspec

from perdure.base.records import ErrorData
from perdure.base.status import ControlKind, Reason, Status
from perdure.errors import StoreDamaged
from perdure.store.contract import ControlRow, Progress, RunRow, WorkerInfo, WorkerRow

SPREAD: Final = 2_654_435_761  # prime: neighbouring runs and records get unrelated seeds
MASK: Final = 0xFFFF_FFFF

encode = msgspec.msgpack.Encoder().encode
_progress = msgspec.msgpack.Decoder(Progress).decode
_error = msgspec.msgpack.Decoder(ErrorData).decode

# A run with its last record: how a `RunRow` is read. The input is beside the row if it is long.
# Things that don't work: a join to the last record (eight times slower than looking it up twice).
RUN: Final = """
SELECT r.num, r.id, r.agent, r.module, r.status, r.reason, r.waiting_on, coalesce(r.input, (SELECT body FROM inputs
  WHERE run = r.num)),
  r.result, r.error, r.queue, r.priority, r.tags, r.worker, (SELECT name FROM workers WHERE num = r.worker), r.epoch,
    r.attempt, r.crashes,
  coalesce((SELECT seq + count - 1 FROM journal WHERE run = r.num ORDER BY seq DESC LIMIT 1), 0), r.code, r.ready_at, r.progress, r.created_at,
  r.updated_at, r.input_sum, r.end_sum,
  coalesce((SELECT at FROM journal WHERE run = r.num ORDER BY seq DESC LIMIT 1), 0)
FROM runs r
"""


def input_sum(run_id: str, body: bytes) -> int:
    return crc32(body, crc32(run_id.encode()))


def end_sum(num: int, result: bytes | None, error: bytes | None) -> int | None:
    if result is None and error is None:
        return None
    return crc32(error or b"", crc32(result or b"", num & MASK) ^ (result is None))


def error_bytes(error: ErrorData | None) -> bytes | None:
    return None if error is None else encode(error)


def run_row(row: Any) -> RunRow:
    """A run, checked. `StoreDamaged` names it."""
    made = _run_row(row)
    if row[7] is None or row[24] != input_sum(made.id, made.input):
        raise damaged_run(made.id, "its input does not match its checksum")
    if row[25] != end_sum(made.num, made.result, row[9]):
        raise damaged_run(made.id, "its result does not match its checksum")
    return made


def listed_row(row: Any) -> RunRow:
    """A run for a listing, where one damaged row must not hide the others: it shows as parked for `store`."""
    try:
        return run_row(row)
    except StoreDamaged:
        return _run_row(
            [
                *row[:4],
                Status.PARKED,
                Reason.STORE,
                None,
                b"",
                None,
                None,
                *row[10:12],
                "{}",
                *row[13:20],
                None,
                None,
                *row[22:],
            ]
        )


def _run_row(row: Any) -> RunRow:
    try:
        return RunRow(
            num=row[0],
            id=row[1],
            agent=row[2],
            module=row[3],
            status=Status(row[4]),
            reason=row[5],
            waiting_on=row[6],
            input=row[7] or b"",
            result=row[8],
            error=None if row[9] is None else _error(row[9]),
            queue=row[10],
            priority=row[11],
            tags={} if row[12] == "{}" else cast("dict[str, str]", json.loads(row[12])),
            worker=row[13],
            worker_name=row[14],
            epoch=row[15],
            attempt=row[16],
            crashes=row[17],
            seq=row[18],
            code=row[19],
            ready_at=row[20],
            progress=None if row[21] is None else _progress(row[21]),
            created_at=row[22],
            updated_at=max(row[23], row[26]),
        )
    except (ValueError, TypeError, RecursionError) as exc:
        raise damaged_run(str(row[1]), f"its row cannot be read ({exc})") from exc


def control_row(row: Any) -> ControlRow:
    try:
        return ControlRow(row[0], row[1], ControlKind(row[2]), row[3], row[4], row[5])
    except ValueError as exc:
        raise StoreDamaged(
            f"request {row[0]} for run number {row[1]} cannot be read ({exc}). Restore a backup; nothing was changed"
        ) from exc


def worker_row(row: Any) -> WorkerRow:
    try:
        info = WorkerInfo(row[1], row[2], row[3], row[4], json.loads(row[5]), json.loads(row[6]))
    except ValueError as exc:
        raise StoreDamaged(
            f"the row of worker {row[0]} cannot be read ({exc}). Restore a backup; nothing was changed"
        ) from exc
    return WorkerRow(row[0], info, row[7], row[8], row[9])


def damaged_run(run: str, what: str) -> StoreDamaged:
    return StoreDamaged(f"run {run!r} is damaged: {what}. Other runs go on; restore a backup to get this one back")


def text(value: Any) -> str:
    """JSON for the columns that SQL looks into."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
