"""Progress of one run on stderr: a line for each step, once its outcome is durable (design 1.6.12).

A terminal also gets a last line that lives.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from perdure.api.app import Perdure
from perdure.api.views import progress_view, time_text
from perdure.base.records import AnyRecord, Asked, Doubted, ErrorData, Executed, Rested, Retried, Tried, decode_record
from perdure.base.status import ENDED, Status
from perdure.cli import output
from perdure.errors import StoreUnavailable
from perdure.store.contract import RunRow

if TYPE_CHECKING:
    from rich.status import Status as Live

_LOOK_S: Final = 0.1
_SPINNER: Final = 3  # cells of the spinner, a space, and the last one, where some terminals wrap
_SHARE: Final = 20  # looking takes at most one part in so many of the time


class Progress:
    def __init__(self, app: Perdure, id: str, *, quiet: bool, hint: str) -> None:
        self._app = app
        self._id = id
        self._quiet = quiet
        self._hint = hint
        self._seen = 0
        self._asked: dict[int, Asked] = {}
        self._status: str | None = None
        self._live: Live | None = None
        self.steps = 0

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            self._live = output.console(sys.stderr).status("starting")
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    async def begin(self, row: RunRow | None) -> None:
        """What an earlier process has done is counted, not told again."""
        if row is None or not row.seq:
            return
        for data in await self._app.store_journal(row.num):
            record = decode_record(data)
            if isinstance(record, Asked):
                self._asked[record.position] = record
            elif isinstance(record, Executed):
                self._asked.pop(record.position, None)
                self.steps += 1
            self._seen += 1
        self._say(f"run {self._id} goes on after {_steps(self.steps)}")

    async def follow(self) -> None:
        while True:
            started = self._app.world.monotonic()
            try:
                await self.look()
            except StoreUnavailable as exc:
                self._say(f"the store is away: {exc}")  # the worker goes on when it is back
            await asyncio.sleep(max(_LOOK_S, _SHARE * (self._app.world.monotonic() - started)))

    async def look(self) -> None:
        """Tell what is new."""
        row = await self._app.store_run(self._id)
        if row is None:
            return
        if row.seq > self._seen:
            for data in await self._app.store_journal(row.num, after=self._seen):
                self._seen += 1
                self._tell(decode_record(data))
        if row.status != self._status:
            if row.status is Status.PAUSED:
                self._say(f"run {self._id} is paused: `{self._hint} resume {self._id}` lets it go on")
            self._status = row.status
        if self._live is not None:
            self._live.update(output.cropped(self._now(row), self._live.console.width - _SPINNER))

    def _tell(self, record: AnyRecord) -> None:
        match record:
            case Asked():
                self._asked[record.position] = record
            case Executed():
                self.steps += 1
                asked = self._asked.pop(record.position, None)
                took = f" ({record.at - asked.at:.3f} s)" if asked is not None else ""
                self._say(f"{_label(asked, record.position)}: {_outcome(record)}{took}")
            case Tried():
                wait_s = max(0.0, record.retry_at - record.at)
                label = _label(self._asked.get(record.position), record.position)
                self._say(
                    f"{label}: attempt {record.attempt} failed: {_error(record.error)}; again in {round(wait_s, 2):g} s"
                )
            case Doubted():
                self._say(f"{_label(self._asked.get(record.position), record.position)}: in doubt: {record.why}")
            case Rested() if record.wake_at is not None:
                self._say(f"waits until {time_text(record.wake_at)}")
            case Retried():
                self._say(f"tried again from step {record.position}" if record.position else "tried again")
            case _:
                pass

    def _say(self, text: str) -> None:
        if self._quiet:
            return
        text = output.plain(text)
        if self._live is not None:
            self._live.console.print(text, style="dim")
        else:
            output.note(text)

    def _now(self, row: RunRow) -> str:
        names = Counter(asked.name for asked in self._asked.values())
        running = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in names.most_common(3))  # noqa: RUF001  # a sign for people
        view: dict[str, Any] = progress_view(row.progress, self._app.world.now(), ended=row.result is not None)
        percent = f" · {view['percent']:g} %" if view["percent"] is not None else ""
        eta = f" · {output.span(view['eta_s'])} left" if view["eta_s"] else ""
        waiting = f" for {row.waiting_on}" if row.waiting_on else ""
        current = f" · {view['current']}" if view.get("current") and row.status not in ENDED else ""
        doing = f" · {running}" if running else ""
        text = f"{row.status}{waiting} · {_steps(self.steps)}{percent}{eta}{current}{doing}"
        return output.plain(text).replace("\n", " ")


def _steps(number: int) -> str:
    return f"{number} step" if number == 1 else f"{number} steps"


def _label(asked: Asked | None, position: int) -> str:
    return f"step {position} {asked.name}" if asked is not None else f"step {position}"


def _outcome(record: Executed) -> str:
    if record.cancelled:
        return "cancelled"
    return "done" if record.error is None else f"failed: {_error(record.error)}"


def _error(error: ErrorData) -> str:
    first = error.message.splitlines()[0] if error.message else ""
    return f"{error.type}: {first}" if first else error.type
