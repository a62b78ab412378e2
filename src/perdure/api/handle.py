"""A handle on a run: ask how it is, wait for it, steer it. Works from any process, whether or not a worker lives."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Generator, Sequence
from typing import Any, Protocol

from perdure.api import checks
from perdure.api.views import EntryView, Status, history_view, run_view
from perdure.base import codec
from perdure.base.records import AnyRecord, Asked, Doubted, Executed, Resolved, Started, Tried, decode_record
from perdure.base.status import ENDED, ControlKind
from perdure.base.status import Status as RunStatus
from perdure.base.world import World
from perdure.errors import Conflict, NotFound, RunCancelled, RunFailed, RunParked, UsageError
from perdure.kernel.superseded import effective
from perdure.store.contract import RunRow
from perdure.worker.step_context import Keys


class Desk(Protocol):
    """What a handle needs of the app it comes from."""

    url: str
    world: World

    async def store_run(self, id: str) -> RunRow | None: ...
    async def store_journal(self, num: int) -> Sequence[bytes]: ...
    async def store_control(self, id: str, kind: ControlKind, body: bytes, by: str) -> RunRow: ...
    async def wait_for_end(self, id: str) -> RunRow: ...


class Handle:
    """`await handle` checks that the run exists and gives the handle itself."""

    def __init__(self, app: Desk, id: str) -> None:
        self._app = app
        self.id = id

    def __await__(self) -> Generator[Any, None, Handle]:
        yield from self._row().__await__()
        return self

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def _row(self) -> RunRow:
        row = await self._app.store_run(self.id)
        if row is None:
            raise NotFound(f"there is no run {self.id!r} in {self._app.url}. `perdure ps` lists the runs")
        return row

    # Looking

    async def status(self) -> Status:
        """The status as text; `.view` holds the other fields of `perdure show`."""
        return Status(run_view(await self._row(), self._app.world.now()))

    async def history(self) -> list[EntryView]:
        row = await self._row()
        records = await self._records(row)
        keys = Keys(row.id)

        def key_of(effect: str, position: int) -> str:
            return keys.read(position, row.epoch, 1) if effect == "read" else keys.effect(position)

        return history_view(records, key_of)

    async def _records(self, row: RunRow) -> list[AnyRecord]:
        return [decode_record(data) for data in await self._app.store_journal(row.num)]

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the end. Raises `RunFailed`, `RunCancelled`, `RunParked` (a person is needed), or `TimeoutError`."""
        async with asyncio.timeout(timeout):
            row = await self._app.wait_for_end(self.id)
        match row.status:
            case RunStatus.COMPLETED:
                return codec.decode(row.result) if row.result is not None else None
            case RunStatus.FAILED:
                error = row.error
                assert error is not None
                data = codec.decode(error.data) if error.data is not None else None
                raise RunFailed(error.type, error.message, data)
            case RunStatus.CANCELLED:
                raise RunCancelled(f"run {self.id} was cancelled")
            case _:
                raise RunParked(parked_message(row), reason=row.reason or "")

    # Steering

    async def pause(self) -> None:
        await self._control(ControlKind.PAUSE)

    async def resume(self, note: str | None = None) -> None:
        await self._control(ControlKind.RESUME, note=checks.note(note))

    async def cancel(self) -> None:
        await self._control(ControlKind.CANCEL)

    async def terminate(self) -> None:
        """End the run at once; its cleanup does not run."""
        await self._control(ControlKind.TERMINATE)

    async def interrupt(self) -> None:
        """Cancel the steps that run now; the agent gets an error and goes on."""
        await self._control(ControlKind.INTERRUPT)

    async def retry(self) -> None:
        """Go on from the failed step."""
        await self._control(ControlKind.RETRY)

    async def resolve(self, step: int | str, *, done: Any = ..., retry: bool = False, fail: bool | str = False) -> None:
        """Decide about a step in doubt: it is done, with this value; do it again; or it has failed."""
        if (done is not ...) + bool(retry) + bool(fail) != 1:
            raise UsageError("resolve needs exactly one of done=VALUE, retry=True, fail=True")
        position = await self._doubted_position(step)
        if done is not ...:
            await self._control(ControlKind.RESOLVE, position=position, verdict="done", result=codec.encode(done))
        elif retry:
            await self._control(ControlKind.RESOLVE, position=position, verdict="retry")
        else:
            await self._control(
                ControlKind.RESOLVE, position=position, verdict="fail", message=fail if isinstance(fail, str) else None
            )

    async def _doubted_position(self, step: int | str) -> int:
        row = await self._row()
        doubted = doubted_steps(await self._records(row))
        named = f"{step}"
        fits = [position for position, name in doubted.items() if named in (str(position), name)]
        if len(fits) == 1:
            return fits[0]
        known = ", ".join(f"{position} {name}" for position, name in doubted.items()) or "none"
        if not fits:
            raise Conflict(
                f"run {self.id} has no step {step!r} in doubt (in doubt: {known}). `perdure history {self.id}` shows its steps"
            )
        raise Conflict(f"{step!r} names {len(fits)} steps in doubt: {known}. Say which by its position")

    async def _control(self, kind: ControlKind, **body: Any) -> None:
        await self._app.store_control(self.id, kind, codec.encode(body), whoami())

    def __getattr__(self, name: str) -> Any:
        if name in ("send", "answer", "fork"):
            raise UsageError(f"handle.{name} is not there yet in this version of perdure")
        raise AttributeError(f"a handle has no {name!r}")


def doubted_steps(records: list[AnyRecord]) -> dict[int, str]:
    """Position and name of the steps that wait for a person's word."""
    names: dict[int, str] = {}
    doubted: dict[int, str] = {}
    for record in effective(records):
        match record:
            case Asked():
                names[record.position] = record.name
            case Doubted():
                doubted[record.position] = names[record.position]
            case Executed() | Resolved() | Started() | Tried():
                doubted.pop(record.position, None)
            case _:
                pass
    return doubted


def parked_message(row: RunRow) -> str:
    why = row.error.message if row.error else ""
    match row.reason:
        case "in_doubt":
            todo = f"Look at the target, then `perdure resolve {row.id} STEP --done JSON | --retry | --fail`"
        case "diverged":
            return f"run {row.id} is parked (diverged): {why}"  # which says what to do
        case "no_code":
            why = why or f"the code that workers have lacks agent {row.agent!r} of module {row.module}"
            todo = f"Put it back and start `perdure worker {row.module}`; the run then goes on by itself"
        case "crash_loop":
            why = why or f"its worker died {row.crashes} times while it got no further"
            todo = f"`perdure history {row.id}` shows where; mend that, then `perdure resume {row.id}`"
        case _:
            todo = f"`perdure show {row.id}` says more; `perdure resume {row.id}` lets it go on"
    return f"run {row.id} is parked ({row.reason}): {why or 'it needs a person'}. {todo}"


def whoami() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else "?"


def is_over(row: RunRow) -> bool:
    return row.status in ENDED or row.status is RunStatus.PARKED
