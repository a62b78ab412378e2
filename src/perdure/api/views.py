"""What is shown of runs: the same fields in code, in `--json` and on screen."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final, Self

import msgspec

from perdure.base import codec
from perdure.base.records import (
    AnyRecord,
    Asked,
    Begun,
    Cancelled,
    Doubted,
    Ended,
    ErrorData,
    Executed,
    Fired,
    Noted,
    Patched,
    Resolved,
    Rested,
    Retried,
    Started,
    Tried,
)
from perdure.store.contract import Progress, RunRow

_LAST: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()


class View(msgspec.Struct, frozen=True):
    """Read a field as an attribute or by its name in JSON: `view.status`, `view["status"]`."""

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def to_dict(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class RunView(View, frozen=True):
    id: str
    agent: str
    status: str
    reason: str | None
    waiting_on: str | None
    progress: dict[str, Any]
    attempt: int
    worker: str | None
    created_at: str
    updated_at: str
    result: Any
    error: dict[str, Any] | None
    queue: str = "default"
    priority: int = 0
    tags: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    ready_at: str | None = None


class EntryView(View, frozen=True):
    """One entry of a run's history. A step is one entry, from its decision to its outcome."""

    seq: int
    kind: str
    name: str | None
    position: int | None
    key: str | None
    effect: str | None
    state: str | None
    attempt: int | None
    result: Any
    error: dict[str, Any] | None
    at: str
    args: Any = None
    probe: bool = False
    attempts: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    detail: Any = None
    superseded: bool = False


class Status(str):
    """A run's status, as text, with the other fields of the run in `view`."""

    __slots__ = ("view",)

    view: RunView

    def __new__(cls, view: RunView) -> Self:
        self = super().__new__(cls, view.status)
        self.view = view
        return self

    @property
    def reason(self) -> str | None:
        return self.view.reason

    @property
    def waiting_on(self) -> str | None:
        return self.view.waiting_on


def time_text(at: float | None) -> str | None:
    """The last moment a calendar has stands for all later ones: a sleep may be endless."""
    if at is None:
        return None
    return datetime.fromtimestamp(min(at, _LAST), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_view(row: RunRow, now: float) -> RunView:
    return RunView(
        id=row.id,
        agent=row.agent,
        status=row.status,
        reason=row.reason,
        waiting_on=row.waiting_on,
        progress=progress_view(row.progress, now, ended=row.result is not None),
        attempt=row.attempt,
        worker=row.worker_name,
        created_at=time_text(row.created_at) or "",
        updated_at=time_text(row.updated_at) or "",
        result=codec.show(row.result) if row.result is not None else None,
        error=error_view(row.error),
        queue=row.queue,
        priority=row.priority,
        tags=row.tags,
        ready_at=time_text(row.ready_at),
    )


def progress_view(progress: Progress | None, now: float, *, ended: bool) -> dict[str, Any]:
    """Percent and ETA only where they are known; never a division by zero."""
    if progress is None or not math.isfinite(progress.done):
        return {"done": None, "total": None, "percent": None, "eta_s": None}
    percent = eta_s = None
    endless = progress.total is not None and not math.isfinite(progress.total)
    if progress.total is not None and progress.total > 0 and not endless:
        percent = round(min(100.0, max(0.0, 100.0 * progress.done / progress.total)), 1)
        gone_s, made = now - (progress.since or now), progress.done - progress.since_done
        if progress.done >= progress.total or ended:
            eta_s = 0.0
        elif gone_s > 0 and made > 0:
            eta_s = round((progress.total - progress.done) * gone_s / made, 1)
    return {
        "done": progress.done,
        "total": None if endless else progress.total,
        "percent": percent,
        "eta_s": eta_s,
        "current": progress.current,
    }


def error_view(error: ErrorData | None) -> dict[str, Any] | None:
    if error is None:
        return None
    view: dict[str, Any] = {"type": error.type, "message": error.message}
    if error.step:
        view |= {"step": error.step, "position": error.position}
    if error.data is not None:
        view["data"] = codec.show(error.data)
    if error.traceback:
        view["traceback"] = error.traceback
    return view


_KINDS: dict[type, str] = {
    Begun: "begin",
    Fired: "timer",
    Rested: "wait",
    Patched: "patch",
    Noted: "note",
    Cancelled: "cancel",
    Resolved: "resolve",
    Retried: "retry",
    Ended: "end",
}


class _Open:
    """A step's entry while its records are gathered."""

    def __init__(self, seq: int, asked: Asked, key: str) -> None:
        self.values: dict[str, Any] = {
            "seq": seq,
            "kind": asked.what,
            "name": asked.name,
            "position": asked.position,
            "key": key,
            "effect": asked.effect,
            "state": "decided",
            "attempt": 0,
            "result": None,
            "error": None,
            "at": time_text(asked.at),
            "args": codec.show(asked.args),
            "probe": asked.probe,
            "attempts": [],
            "detail": None,
            "superseded": False,
        }

    def take(self, record: Started | Tried | Executed | Doubted | Resolved) -> None:
        values = self.values
        match record:
            case Started():
                values |= {"state": "started", "attempt": record.attempt}
            case Tried():
                values["attempts"].append(
                    {
                        "attempt": record.attempt,
                        "error": error_view(record.error),
                        "retry_at": time_text(record.retry_at),
                        "at": time_text(record.at),
                    }
                )
                values |= {"state": "decided", "attempt": record.attempt, "error": error_view(record.error)}
            case Executed():
                shown = codec.show(record.result) if record.result is not None else None
                values |= {
                    "state": "executed",
                    "attempt": record.attempt,
                    "result": shown,
                    "error": error_view(record.error),
                    "detail": None,
                }
                if record.cancelled:
                    values["detail"] = "cancelled"
            case Doubted():
                values |= {"attempt": record.attempt, "detail": f"in doubt: {record.why}"}
            case Resolved():
                values["detail"] = f"resolved: {record.verdict}" + (f" by {record.by}" if record.by else "")


def history_view(records: list[AnyRecord], key_of: Any) -> list[EntryView]:
    """The journal, one entry per step, in the order of decisions."""
    entries: list[dict[str, Any]] = []
    steps: dict[int, _Open] = {}
    for seq, record in enumerate(records, start=1):
        match record:
            case Asked():
                steps[record.position] = _Open(seq, record, key_of(record.effect, record.position))
                entries.append(steps[record.position].values)
            case Started() | Tried() | Executed() | Doubted():
                if record.position in steps:
                    steps[record.position].take(record)
            case _:
                if isinstance(record, Resolved) and record.position in steps:
                    steps[record.position].take(record)
                if isinstance(record, Retried):
                    for entry in entries:
                        entry["superseded"] = entry["superseded"] or record.dropped_from <= entry["seq"]
                entries.append(_plain_entry(seq, record))
    return [EntryView(**entry) for entry in entries]


def _plain_entry(seq: int, record: AnyRecord) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(
        ("name", "position", "key", "effect", "attempt", "result", "error", "args", "detail")
    )
    values |= {
        "seq": seq,
        "kind": _KINDS[type(record)],
        "state": "executed",
        "at": time_text(record.at),
        "probe": False,
        "attempts": [],
        "superseded": False,
    }
    match record:
        case Begun():
            values["detail"] = {"python": record.python, "code": record.code}
        case Fired():
            values["name"] = f"timer {record.timer}"
        case Rested():
            values["detail"] = {"until": time_text(record.wake_at)}
        case Patched():
            values["name"] = record.name
        case Noted():
            values |= {"result": record.text, "detail": {"by": record.by}}
        case Cancelled():
            values["detail"] = {"by": record.by}
        case Resolved():
            shown = codec.show(record.result) if record.result is not None else None
            values |= {
                "position": record.position,
                "name": record.verdict,
                "result": shown,
                "detail": {"by": record.by},
            }
        case Retried():
            values |= {"position": record.position, "detail": {"by": record.by, "effects_kept": record.effects}}
        case Ended():
            shown = codec.show(record.result) if record.result is not None else None
            values |= {"name": record.status, "result": shown, "error": error_view(record.error)}
        case _:
            pass
    return values
