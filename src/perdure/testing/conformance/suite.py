"""The conformance suite: `PROMISES`, and `keep` to run one of them against a store.

A store's test file:

    @pytest.mark.parametrize("promise", PROMISES, ids=name)
    def test_keeps(promise, tmp_path):
        keep(promise, lambda world: open_store(str(tmp_path / "store.db"), world))

`make_store` is called several times and must give stores on the same data, empty at first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final

from perdure.errors import UsageError
from perdure.testing.conformance import appending, claiming, controlling, creating, leasing, listing, sharing
from perdure.testing.conformance.kit import Kit, MakeStore, StillWorld

Promise = Callable[[Kit], Coroutine[Any, Any, None]]

PROMISES: Final[tuple[Promise, ...]] = (
    *creating.PROMISES,
    *listing.PROMISES,
    *appending.PROMISES,
    *claiming.PROMISES,
    *leasing.PROMISES,
    *controlling.PROMISES,
    *sharing.PROMISES,
)


def name(promise: Promise) -> str:
    return promise.__name__


def keep(promise: Promise, make_store: MakeStore) -> None:
    """Run one promise; AssertionError if the store does not keep it."""
    if not __debug__:
        raise UsageError("the promises are asserts: run them without -O")
    asyncio.run(_keep(promise, make_store))


async def _keep(promise: Promise, make_store: MakeStore) -> None:
    world = StillWorld()
    async with AsyncExitStack() as stack:
        store = make_store(world)
        await store.open(worker=False)
        stack.push_async_callback(store.close)
        await promise(Kit(make_store, world, stack, store))
        assert await store.check() == [], "the store must be sound after its verbs"
