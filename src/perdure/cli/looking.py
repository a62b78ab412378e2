"""`ps`, `show`, `history`: what is in the store. None of them needs users' code or a worker."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, cast

from perdure.api.handle import doubted_steps, parked_message
from perdure.api.views import EntryView, RunView, run_view
from perdure.base.records import AnyRecord, Doubted, decode_record
from perdure.base.status import Status
from perdure.cli import client, failures, output, settings
from perdure.cli.settings import Common, Settings
from perdure.errors import UsageError
from perdure.store.contract import RunRow

_FOR_PEOPLE: Final = 100
_HISTORY_FOR_PEOPLE: Final = 200
_ALL: Final = 1 << 60
_CELL: Final = 60
_VALUE: Final = 2_000


def ps(common: Common, *, status: list[str], agent: list[str], queue: str | None, limit: int | None) -> int:
    for word in status:
        if word not in list(Status):
            raise UsageError(f"there is no status {word!r}. Use {', '.join(Status)}")
    _check_limit(limit)
    where: dict[str, Any] = {"status": status, "agent": agent}
    if queue is not None:
        where["queue"] = queue
    return client.execute(_ps(settings.read(common), common, where, limit))


async def _ps(chosen: Settings, common: Common, where: dict[str, Any], limit: int | None) -> int:
    try:
        async with client.connected(chosen) as app:
            if common.json:
                async for view in app.list(where, limit=limit or _ALL):
                    output.emit(view.to_dict())
                return failures.OK
            wanted = limit if limit is not None else _FOR_PEOPLE
            views = await app.list(where, limit=wanted + 1 if wanted else _ALL)
            now = app.world.now()
    except client.NoStore as none:
        output.note(str(none))
        return failures.OK
    shown = views[:wanted] if wanted else views
    headers = ["ID", "AGENT", "STATUS", "PROGRESS", "TRY", "WORKER", "UPDATED", "RESULT"]
    output.table(headers, [_ps_row(view, now) for view in shown], status_column=2)
    if len(views) > len(shown):
        output.note(f"the {wanted} newest; --limit N shows more, --limit 0 all")
    return failures.OK


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise UsageError(f"--limit {limit} is below 0. Use 0 for all")


def _ps_row(view: RunView, now: float) -> list[str]:
    status = view.status
    if view.reason or view.waiting_on:
        status += f" ({view.reason or view.waiting_on})"
    if view.error is not None:
        result = f"{view.error['type']}: {view.error['message']}".splitlines()[0][:_CELL]
    else:
        result = output.short(view.result, _CELL) if view.status == Status.COMPLETED else ""
    worker = view.worker[-6:] if view.worker else ""
    return [
        view.id,
        view.agent,
        status,
        _progress(view.progress),
        str(view.attempt),
        worker,
        _ago(view.updated_at, now),
        result,
    ]


def _progress(progress: dict[str, Any]) -> str:
    done, total = progress["done"], progress["total"]
    if done is None:
        return ""
    if total is None:
        return f"{done:g}"
    eta = progress["eta_s"]
    return (
        f"{done:g}/{total:g}"
        + (f" {progress['percent']:g}%" if progress["percent"] is not None else "")
        + (f" {output.span(eta)} left" if eta else "")
    )


def _ago(text: str, now: float) -> str:
    seconds = now - datetime.fromisoformat(text).timestamp()
    return f"{output.span(max(0.0, seconds))} ago"


def show(common: Common, run: str) -> int:
    return client.execute(_show(settings.read(common), common, run))


async def _show(chosen: Settings, common: Common, run: str) -> int:
    async with client.connected(chosen) as app:
        row = await client.find(app, run)
        view = run_view(row, app.world.now())
        if common.json:
            output.emit(view.to_dict())
            return failures.OK
        doubts = (
            _doubts([decode_record(data) for data in await app.store_journal(row.num)])
            if row.reason == "in_doubt"
            else {}
        )
        for text in _page(row, view, app.world.now()):
            output.line(output.plain(text))
        for text in _next(row, doubts, chosen.prefix):
            output.line(output.plain(text))
    return failures.OK


def _page(row: RunRow, view: RunView, now: float) -> list[str]:
    fields: list[tuple[str, str | None]] = [
        ("run", view.id),
        ("agent", f"{view.agent} (module {row.module})"),
        ("status", view.status + (f" ({view.reason})" if view.reason else "")),
        ("waiting on", view.waiting_on),
        ("ready at", view.ready_at if row.ready_at is not None and row.ready_at > now else None),
        ("progress", _progress(view.progress) or None),
        ("queue", view.queue if view.queue != "default" or view.priority else None),
        ("priority", str(view.priority) if view.priority else None),
        ("tags", ", ".join(f"{key}={value}" for key, value in view.tags.items()) or None),
        ("attempt", str(view.attempt)),
        ("worker", view.worker),
        ("records", str(row.seq)),
        ("created", f"{view.created_at} ({_ago(view.created_at, now)})"),
        ("updated", f"{view.updated_at} ({_ago(view.updated_at, now)})"),
        ("result", output.short(view.result, _VALUE) if view.status == Status.COMPLETED else None),
    ]
    lines = [f"{name:<11}{value}" for name, value in fields if value is not None]
    if view.error is not None and view.status != Status.PARKED:
        step = f" (step {view.error['position']} {view.error['step']})" if "step" in view.error else ""
        trace = view.error.get("traceback", "").splitlines()
        message = view.error["message"].partition("\n")[0] if trace else view.error["message"]
        lines.append(f"{'error':<11}{view.error['type']}: {message}{step}")
        lines += [f"  {text}" for text in trace]
    return lines


def _next(row: RunRow, doubts: dict[int, tuple[str, str]], perdure: str) -> list[str]:
    """What a person can do now."""
    match row.status:
        case Status.PARKED:
            lines = ["", "Look at the target, then decide:" if doubts else parked_message(row)]
            for position, (name, why) in doubts.items():
                lines.append(f"  step {position} {name} is in doubt: {why}")
                lines.append(f"    {perdure} resolve {row.id} {position} --done JSON | --retry | --fail")
            return lines
        case Status.FAILED:
            again = f"`{perdure} retry {row.id}` goes on from the failed step"
            return ["", f"{again}; `{perdure} history {row.id}` shows its steps"]
        case Status.PAUSED:
            return ["", f"`{perdure} resume {row.id}` lets it go on"]
        case Status.QUEUED:
            return ["", f"`{perdure} worker {row.module}` takes it up"]
        case _:
            return []


def _doubts(records: list[AnyRecord]) -> dict[int, tuple[str, str]]:
    whys = {record.position: record.why for record in records if isinstance(record, Doubted)}
    return {position: (name, whys[position]) for position, name in doubted_steps(records).items()}


def history(common: Common, run: str, *, limit: int | None) -> int:
    _check_limit(limit)
    return client.execute(_history(settings.read(common), common, run, limit))


async def _history(chosen: Settings, common: Common, run: str, limit: int | None) -> int:
    async with client.connected(chosen) as app:
        row = await client.find(app, run)
        entries = await app.get(row.id).history()
    wanted = limit if limit is not None else 0 if common.json else _HISTORY_FOR_PEOPLE
    shown = entries[-wanted:] if wanted else entries
    if common.json:
        for entry in shown:
            output.emit(entry.to_dict())
        return failures.OK
    headers = ["SEQ", "KIND", "NAME", "POS", "EFFECT", "STATE", "TRY", "AT (UTC)", "RESULT"]
    days = {entry.at[:10] for entry in shown}
    output.table(headers, [_history_row(entry, same_day=len(days) == 1) for entry in shown], status_column=5)
    if len(shown) < len(entries):
        output.note(f"the last {len(shown)} of {len(entries)} entries; --limit N shows more, --limit 0 all")
    return failures.OK


def _history_row(entry: EntryView, *, same_day: bool) -> list[str]:
    state = "superseded" if entry.superseded else entry.state or ""
    if entry.error is not None:
        result = f"{entry.error['type']}: {entry.error['message']}".splitlines()[0][:_CELL]
    elif entry.result is not None or (entry.kind == "step" and entry.state == "executed"):
        result = output.short(entry.result, _CELL)
    else:
        result = entry.detail if isinstance(entry.detail, str) else _details(entry.detail)
    if isinstance(entry.detail, str) and result != entry.detail:
        result = f"{result}  [{entry.detail}]"
    number = "" if entry.position is None else str(entry.position)
    tries = "" if entry.attempt is None else str(entry.attempt)
    at = entry.at[11:-1] if same_day else entry.at[:19].replace("T", " ")
    return [str(entry.seq), entry.kind, entry.name or "", number, entry.effect or "", state, tries, at, result]


def _details(detail: Any) -> str:
    items: dict[str, Any] = cast("dict[str, Any]", detail) if isinstance(detail, dict) else {}
    return " ".join(f"{key}={value}" for key, value in items.items() if value)
