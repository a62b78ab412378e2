"""`demo`: an agent, its worker killed three times, the recovery live, and the counts at the end."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli import failures, output
from perdure.cli.showcase.scenes import PACE, Pace, Play, PlayFailed
from perdure.cli.showcase.screen import Screen, screen
from perdure.cli.showcase.stage import Stage


def demo(
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="Keep the run there, to look at it afterwards.", show_default=False
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live picture.")] = False,  # noqa: FBT002  # an option of a command
) -> int:
    """See a run survive three kills, in 15 seconds."""
    return perform(store, plain=plain)


def perform(store: str | None, *, plain: bool, pace: Pace = PACE) -> int:
    console = output.console(sys.stdout)
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as name:
        folder = Path(name)
        try:
            with screen(console, plain=plain) as shown:
                stage = asyncio.run(_play(store or str(folder / "demo.db"), folder, shown, pace))
        except PlayFailed as exc:
            failures.say(f"the demo did not come to its end: {exc}")
            return failures.RUN_FAILED
    if store is not None and stage.run is not None:
        console.print(f"\nthe run is kept: perdure history {stage.run.id} --store {store}", soft_wrap=True)
    return failures.OK if stage.good() else failures.RUN_FAILED


async def _play(store: str, folder: Path, shown: Screen, pace: Pace) -> Stage:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # its processes must end with it
    async with Play(store, folder, shown.show, pace) as play:
        await play.scenes()
        return play.stage
