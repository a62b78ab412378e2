"""Talking to a store without a worker, and finding runs by what a person types."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from perdure.api.app import Perdure
from perdure.cli.settings import Settings
from perdure.errors import NotFound, UsageError
from perdure.store.contract import RunRow, Where

T = TypeVar("T")
_CANDIDATES_MAX: Final = 10


class NoStore(NotFound):
    """There is no store yet."""


def execute(work: Coroutine[Any, Any, T], *, fast: bool = False) -> T:
    """Run to the end. `fast`: on uvloop where there is one, for commands that execute runs."""
    factory = None
    if fast:
        try:
            import uvloop

            factory = uvloop.new_event_loop
        except ImportError:
            pass
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


@asynccontextmanager
async def connected(settings: Settings) -> AsyncGenerator[Perdure, None]:
    """A client on a store that exists: looking for a run never creates one."""
    _check_exists(settings.store)
    async with Perdure(settings.store, worker=False) as app:
        yield app


def _check_exists(url: str) -> None:
    text = unquote(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else url
    path = Path(text).expanduser()
    if "://" in text or text.startswith((":", "file:")) or path.exists() or not path.parent.is_dir():
        return  # opening it has the better answer
    more = "`perdure run MODULE:AGENT` makes one; --store URL or PERDURE_STORE names another"
    raise NoStore(f"there is no store {url} here. {more}")


async def find(app: Perdure, given: str) -> RunRow:
    """The run with that id, or the only one whose id begins so."""
    row = await app.store_run(given)
    if row is not None:
        return row
    rows: Sequence[RunRow] = ()
    if given:
        rows = await app.store_runs(Where(id_prefix=given), limit=_CANDIDATES_MAX + 1, before=None)
    if not rows:
        raise NotFound(f"there is no run {given!r} in {app.url}. `perdure ps` lists the runs")
    if len(rows) > 1:
        more = " and more" if len(rows) > _CANDIDATES_MAX else ""
        names = ", ".join(item.id for item in rows[:_CANDIDATES_MAX])
        raise UsageError(f"{given!r} begins several ids: {names}{more}. Give more of the one you mean")
    found = await app.store_run(rows[0].id)
    assert found is not None, "a run is never deleted"
    return found
