"""Timeouts of steps: one heap and one timer for all attempts, so that a step's default timeout costs next to nothing."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol


class Expiring(Protocol):
    over: bool
    deadline: float

    def expire(self, now: float) -> None: ...


class Deadlines:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._heap: list[tuple[float, int, Expiring]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0.0

    def watch(self, item: Expiring) -> None:
        """Call `item.expire` once `item.deadline` has passed, unless it is `over` by then. A later deadline is kept up with."""
        self._count += 1
        heapq.heappush(self._heap, (item.deadline, self._count, item))
        if self._timer is None or item.deadline < self._armed_for:
            self._arm(item.deadline)
        if len(self._heap) > 4096 and self._count % 4096 == 0:
            self._heap = [entry for entry in self._heap if not entry[2].over]
            heapq.heapify(self._heap)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = deadline
        self._timer = asyncio.get_running_loop().call_later(max(0.0, deadline - self._monotonic()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._monotonic()
        heap = self._heap
        while heap and (heap[0][2].over or heap[0][0] <= now):
            _, _, item = heapq.heappop(heap)
            if item.over:
                continue
            if item.deadline > now:
                self._count += 1
                heapq.heappush(heap, (item.deadline, self._count, item))
            else:
                item.expire(now)
        if heap:
            self._arm(heap[0][0])

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
