"""The demo's worker process: serves the agent until the one who started it is gone. What `perdure worker` does, in a few lines."""

from __future__ import annotations

import asyncio
import sys

from perdure.api.app import Perdure
from perdure.cli.showcase import agent


async def serve(store: str) -> None:
    assert agent.trip.spec  # importing the module has registered its agent
    async with Perdure(store):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
