"""What a run leaves in memory once it has ended or waits: nothing, at once, without the collector."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fundamentals.conftest import until

from perdure import RunFailed, agent, step
from perdure.base import limits
from perdure.kernel.activation import Activation
from perdure.kernel.ask import Ask, AskFuture
from perdure.kernel.loop import RunFuture, RunLoop, RunTask
from perdure.worker.attempt import Attempt
from perdure.worker.effects import Effects
from perdure.worker.execution import Execution
from perdure.worker.outbox import Outbox

KINDS = (Execution, Activation, Effects, Outbox, RunLoop, RunTask, RunFuture, Ask, AskFuture, Attempt)


@step
async def double(n: int) -> int:
    return 2 * n


@step
def refuse() -> None:
    raise ValueError("no")


@step(retries=1, backoff=3600.0)
async def refuse_for_long() -> None:
    raise ValueError("not yet")


@agent
async def works() -> int:
    return await double(await double(1))


@agent
async def fails() -> None:
    await refuse()


@agent
async def sleeps() -> None:
    await double(1)
    await asyncio.sleep(3600)


@agent
async def backs_off() -> None:
    await refuse_for_long()


@pytest.fixture
def held_before() -> Iterator[Counter[str]]:
    """What other tests keep alive; the collector stands still meanwhile."""
    gc.collect()
    gc.disable()
    yield held()
    gc.enable()


def held() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if type(each) in KINDS)


@pytest.mark.parametrize("inline_s", [1.0, -1.0], ids=["commits on the loop", "commits in a thread"])
@pytest.mark.parametrize("code", [works, fails, sleeps, backs_off])
def test_a_run_that_left_is_freed_at_once(
    durably: Any, code: Any, inline_s: float, held_before: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs hold nothing that leads back to them: what has left must not wait for the collector, which comes late."""
    monkeypatch.setattr(limits, "inline_commit_s_max", inline_s)

    async def main(app: Any) -> None:
        handle = await app.start(code)
        if code in (sleeps, backs_off):
            await until(handle, "waiting")
        elif code is fails:
            with pytest.raises(RunFailed):
                await handle.result()
        else:
            assert await handle.result() == 4
        while app.worker.running or held() - held_before:
            await asyncio.sleep(0.002)  # the last callbacks of this turn of the loop still hold it

    durably(main)
