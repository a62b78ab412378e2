"""The demo's agent: plain asyncio. Nothing in it knows that its process will be killed three times."""

from __future__ import annotations

import asyncio

from perdure.api.agent import agent
from perdure.api.run import run
from perdure.api.step import step
from perdure.cli.showcase import ledger

QUESTIONS = ("ferry", "hotel", "weather")
TRAVELLERS = ("Ada", "Ben", "Cleo", "Dov")
NIGHT_S = 5.0


@step(effect="read")
async def look_up(question: str) -> str:
    return await ledger.ask(question)


@step  # may run again after a crash, always with the same run.key
async def book(what: str) -> str:
    return await ledger.apply(f"book {what}", key=run.key)


@step
async def tell(name: str) -> str:
    return await ledger.apply(f"tell {name}", key=run.key)


@agent
async def trip(night_s: float) -> list[str]:
    await asyncio.gather(*(look_up(question) for question in QUESTIONS))
    booked = await book("ferry")
    await asyncio.sleep(night_s)  # survives restarts
    told = await asyncio.gather(*(tell(name) for name in TRAVELLERS))
    return [booked, *told]
