"""Timeouts of steps: a step's default timeout must cost next to nothing.

Every running attempt is in one set. Once a second the few whose time is near move to a heap with one precise timer; an attempt that is over
is in neither, so nothing of it stays in memory until its timeout would have come.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

_LOOK_S = 1.0
_NEAR_S = 2 * _LOOK_S


class Expiring(Protocol):
    over: bool
    deadline: float

    def expire(self, now: float) -> None: ...


class Deadlines:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._far: set[Expiring] = set()
        self.forget: Callable[[Expiring], None] = self._far.discard
        self._near: list[tuple[float, int, Expiring]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0.0
        self._look_at = 0.0

    def watch(self, item: Expiring, now: float) -> None:
        """Call `item.expire` once `item.deadline` has passed, unless it is `over` by then. A later deadline is kept up with."""
        if item.deadline - now > _NEAR_S:
            self._far.add(item)
            if self._timer is None:
                self._look_at = now + _LOOK_S
                self._arm(self._look_at, now)
        else:
            self._add_near(item)
            if self._timer is None or item.deadline < self._armed_for:
                self._arm(item.deadline, now)

    def _add_near(self, item: Expiring) -> None:
        self._count += 1
        heapq.heappush(self._near, (item.deadline, self._count, item))

    def _arm(self, at: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            for item in [item for item in self._far if item.deadline - now <= _NEAR_S]:
                self._far.discard(item)
                self._add_near(item)
        near = self._near
        while near and (near[0][2].over or near[0][0] <= now):
            _, _, item = heapq.heappop(near)
            if item.over:
                continue
            if item.deadline > now:
                self.watch(item, now)
            else:
                item.expire(now)
        wanted = [at for at in (near[0][0] if near else None, self._look_at if self._far else None) if at is not None]
        if wanted and (self._timer is None or min(wanted) < self._armed_for):
            self._arm(min(wanted), now)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._far.clear()
        self._near.clear()
