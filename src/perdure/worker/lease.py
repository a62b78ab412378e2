"""The worker's own view of its lease.

L2. A worker starts no effect unless its lease is valid by a margin on a monotonic clock.
"""

from __future__ import annotations

from perdure.base import limits
from perdure.base.world import World


class Lease:
    __slots__ = ("_world", "trusted_until", "ttl_s")

    def __init__(self, world: World, ttl_s: float) -> None:
        self._world = world
        self.ttl_s = ttl_s
        self.trusted_until = 0.0

    def valid(self) -> bool:
        return self._world.monotonic() < self.trusted_until

    def sent(self) -> float:
        """Call before asking the store to renew."""
        return self._world.monotonic()

    def renewed(self, sent: float) -> None:
        # Anchored to when the renewal was sent, so a slow commit cannot stretch the lease.
        self.trusted_until = sent + self.ttl_s * (1 - limits.lease_margin_share)

    def every_s(self) -> float:
        return self.ttl_s * limits.heartbeat_share
