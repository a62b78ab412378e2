"""The demo's agent: plain asyncio. Nothing in it knows that its process will be killed three times."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from perdure.api.agent import agent
from perdure.api.run import run
from perdure.api.step import step
from perdure.testing.ledger import Target

LEDGER: Final = "PERDURE_DEMO_LEDGER"
"""The environment variable that names the ledger's address, as a service's address is named elsewhere."""

QUESTIONS: Final = {"ferry": 0.5, "hotel": 1.2, "weather": 0.8}  # and how many seconds an answer takes
TRAVELLERS: Final = ("Ada", "Ben", "Cleo", "Dov")
TRAVEL_S: Final = 0.35


@step(effect="read")
async def look_up(question: str) -> str:
    await asyncio.sleep(QUESTIONS[question])
    return await _ledger(f"look up {question}")


@step  # may run again after a crash, always with the same run.key
async def book(what: str) -> str:
    return await _ledger(f"book {what}")


@step
async def tell(name: str) -> str:
    return await _ledger(f"tell {name}")


@agent
async def trip(night_s: float) -> list[str]:
    await asyncio.gather(*(look_up(question) for question in QUESTIONS))
    booked = await book("ferry")
    await asyncio.sleep(night_s)  # survives restarts
    told = await asyncio.gather(*(tell(name) for name in TRAVELLERS))
    return [booked, *told]


async def _ledger(what: str) -> str:
    """Something happens outside, once per key, and is counted there."""
    await Target(os.environ[LEDGER]).acall(what, key=run.key)
    await asyncio.sleep(TRAVEL_S)  # the answer is on its way
    return f"{what}: done"
