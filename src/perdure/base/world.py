"""Time, randomness, names and tasks: the one door to everything that is not a function of its input.

Nothing else in perdure reads a clock or draws a random number, so a simulation replaces this object and controls all.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Protocol


class World(Protocol):
    def now(self) -> float:
        """Seconds since 1970, UTC; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, also while the process or the machine is frozen."""
        ...

    def random(self) -> float:
        """In [0, 1)."""
        ...

    def seed(self) -> int:
        """A fresh 63-bit number nobody can guess."""
        ...

    def name(self) -> str:
        """A fresh name, unique everywhere, sorted by time."""
        ...

    def spawn(self, work: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        """A task; without a context it copies the current one."""
        ...


_unguessable = random.SystemRandom()  # what `secrets` draws from
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RealWorld:
    """The world as it is."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names = random.Random(_unguessable.getrandbits(128))

    now = staticmethod(time.time)

    # BOOTTIME goes on while a laptop sleeps; a lease must notice that (L2).
    monotonic = staticmethod(functools.partial(time.clock_gettime, _BOOTTIME))

    random = staticmethod(random.random)

    def seed(self) -> int:
        return _unguessable.getrandbits(63)

    def name(self) -> str:
        millis = int(time.time() * 1000)
        return _base32(millis, 9) + _base32(self._names.getrandbits(50), 10)

    def spawn(self, work: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work, context=context)


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def _base32(number: int, digits: int) -> str:
    out = ""
    for _ in range(digits):
        out = _ALPHABET[number & 31] + out
        number >>= 5
    return out
