"""A store of its own for each test, and a way to wait for a fact."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Handle, Perdure
from perdure.base import limits

Main = Callable[[Perdure], Awaitable[Any]]


@pytest.fixture(autouse=True)
def runs_leave_memory_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits longer than this is dropped from memory and replayed when it wakes up."""
    monkeypatch.setattr(limits, "idle_stay_s", 0.1)


@pytest.fixture
def durably(tmp_path: Path) -> Callable[[Main], Any]:
    """Runs `main(app)` in a fresh event loop on the test's store; called again, it is as if the program was
    started again."""

    def durably(main: Main, **options: Any) -> Any:
        async def opened() -> Any:
            async with Perdure(str(tmp_path / "perdure.db"), **options) as app:
                return await asyncio.wait_for(main(app), 30)

        return asyncio.run(opened())

    return durably


async def until(handle: Handle, status: str, **fields: Any) -> Any:
    """The run's view, once it has that status and these fields."""
    while True:
        view = (await handle.status()).view
        if view.status == status and all(view[name] == value for name, value in fields.items()):
            return view
        await asyncio.sleep(0.002)


async def steps(handle: Handle) -> list[tuple[Any, ...]]:
    """Name, position and state of each step of the run."""
    return [(entry.name, entry.position, entry.state) for entry in await handle.history() if entry.kind == "step"]


async def kinds(handle: Handle) -> list[str]:
    return [entry.kind for entry in await handle.history()]
