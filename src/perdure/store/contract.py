"""The store contract: what every store promises. `perdure.testing.conformance` is its real text.

J1. A record once committed is never changed.
L1. Every write of a worker carries worker and epoch, checked in the same transaction.
C1. A control request is acknowledged only when durable.
S1. Nothing on disk is trusted: checksums, gaps and versions are checked; unknown versions are refused.

Every verb is one atomic transaction, durable when it returns. Verbs are coroutines, also where a store answers at once. They may be called
while others are under way: the store puts them in an order of its own, and a caller that needs one waits for the first. The store's clock (`World.now`) decides about
leases and readiness. Any verb may raise `StoreUnavailable` (nothing was written) or `StoreDamaged`.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

import msgspec

from perdure.base.records import ErrorData
from perdure.base.status import ControlKind, Status


class NewRun(msgspec.Struct, frozen=True):
    """W0: everything about a run that is known before it executes."""

    id: str
    agent: str
    module: str
    input: bytes
    queue: str = "default"
    priority: int = 0
    ready_at: float | None = None  # None: now
    tags: dict[str, str] = {}


class Progress(msgspec.Struct, frozen=True):
    done: float
    total: float | None = None
    current: str | None = None
    since: float | None = None  # when the first progress was seen, and how much was done then
    since_done: float = 0.0


class RunRow(msgspec.Struct, frozen=True):
    """A run as the store knows it."""

    num: int
    id: str
    agent: str
    module: str
    status: Status
    reason: str | None
    waiting_on: str | None
    input: bytes
    result: bytes | None
    error: ErrorData | None
    queue: str
    priority: int
    tags: dict[str, str]
    worker: int | None  # the number of the worker that holds it
    worker_name: str | None
    epoch: int
    attempt: int  # 1, plus one for every time a worker died with it
    crashes: int  # worker deaths since the run last got on
    seq: int  # number of the last record
    code: str | None  # digest of the code that last executed it
    ready_at: float | None
    progress: Progress | None
    created_at: float
    updated_at: float


class ControlRow(msgspec.Struct, frozen=True):
    id: int
    run: int
    kind: ControlKind
    body: bytes  # the codec's bytes of a dict
    by: str
    at: float


class Claimed(msgspec.Struct, frozen=True):
    """A run that this worker holds from now on, with what was asked of it meanwhile."""

    run: RunRow
    controls: list[ControlRow]


class WorkerInfo(msgspec.Struct, frozen=True):
    """Who a worker is. `host`, `pid` and `pid_start` let a neighbour see that it is dead."""

    name: str
    host: str  # boot id and pid namespace: processes with the same value see each other's pids
    pid: int
    pid_start: int
    agents: dict[str, str]  # agent name -> digest of its code
    modules: list[str]


class WorkerRow(msgspec.Struct, frozen=True):
    num: int
    info: WorkerInfo
    started_at: float
    lease_until: float
    held: int  # runs it holds


class RunChange(msgspec.Struct, frozen=True):
    """What an append changes on the run's row."""

    status: Status
    reason: str | None = None
    waiting_on: str | None = None
    ready_at: float | None = None
    result: bytes | None = None
    error: ErrorData | None = None
    release: bool = False  # the worker lets go of the run; ready now if a request is left, but diverged or damaged only if that is to terminate
    code: str | None = None  # None: leave as it is


class Pulse(msgspec.Struct, frozen=True):
    """A step's heartbeat: the latest one per step is kept."""

    position: int
    details: bytes | None


class RunWrite(msgspec.Struct):
    """One run's part of a batch. `seq` is the number of its first record and must be the stored next one."""

    num: int
    epoch: int
    seq: int
    records: list[bytes]
    change: RunChange | None = None
    progress: Progress | None = None
    pulses: list[Pulse] = []
    controls_seen: int = 0  # controls up to this id are consumed by this write
    unless_control: int | None = None  # refuse the write if the run has a control with a higher id


class Verdict(Enum):
    DONE = "done"
    CONTROL = "control"  # not written: newer control exists (only with `unless_control`)
    FENCED = "fenced"  # not written: the run is no longer held by this worker at this epoch
    CONFLICT = "conflict"  # not written: `seq` is not the next one, or the store refused these records


class Appended(msgspec.Struct, frozen=True):
    verdicts: list[Verdict]
    control_mark: int  # the highest control id ever given out: if it grew, ask `controls`


class Where(msgspec.Struct, frozen=True):
    """A filter for listings; every given field must hold."""

    statuses: list[str] = []
    agents: list[str] = []
    queue: str | None = None
    tags: dict[str, str] = {}
    id_prefix: str | None = None
    created_after: float | None = None
    created_before: float | None = None


class Store(Protocol):
    """See the module's docstring. `url` is what the user gave."""

    url: str

    async def open(self, *, worker: bool) -> None:
        """Open or create; migrate forward; check. `worker`: this process will write a lot (prepare for it).

        `StoreTooNew` for a newer schema, `StoreDamaged` where a check fails, `StoreUnavailable` or `StoreUnusable` for a path that cannot be a store.
        """
        ...

    async def close(self) -> None: ...

    # Runs

    async def create(self, new: NewRun, *, worker: int | None = None) -> tuple[Claimed, bool]:
        """Record a run; True if it is new. The same id again gives the run that is there (whoever holds it), unchanged.

        With `worker`, a new run that is ready now is claimed by it in the same transaction.
        """
        ...

    async def run(self, id: str) -> RunRow | None: ...

    async def runs(self, where: Where, *, limit: int, before: int | None = None) -> list[RunRow]:
        """Newest first; `before` is the `num` of the last row of the page before."""
        ...

    async def journal(self, num: int, *, after: int = 0) -> list[bytes]:
        """The records after number `after`, checked for gaps and checksums (`StoreDamaged` names run and record)."""
        ...

    async def pulses(self, num: int) -> dict[int, tuple[float, bytes | None]]:
        """Position -> time and details of the last heartbeat."""
        ...

    # A worker's writes

    async def append(self, worker: int, writes: list[RunWrite]) -> Appended:
        """Group commit. Refused runs do not stop the others; a verdict for each write, in order (L1).

        Raises `LeaseLost` if the worker itself is gone: then nothing was written.
        """
        ...

    async def register(self, info: WorkerInfo, *, ttl_s: float) -> int: ...

    async def renew(self, worker: int, *, ttl_s: float, agents: dict[str, str] | None = None) -> None:
        """Heartbeat; raises `LeaseLost` if the worker was buried."""
        ...

    async def workers(self) -> list[WorkerRow]: ...

    async def bury(self, worker: int, *, dead: bool) -> list[str] | None:
        """Take all runs from a worker whose lease is over by the store's clock, or that is known to be `dead`; the ids of its runs.

        None if the worker is gone already or its lease still holds. Its row is removed in the same transaction, so it can write nothing more
        (design 1.6.11). Each run becomes ready now; its `attempt` grows; `crashes` is 1 if it got on since its last crash (a new Executed, Fired,
        Noted or Cancelled record), else it grows; over `limits.crashes_without_progress_max` it is parked as `crash_loop`. A lease further away than
        twice its own ttl counts as over: a clock jumped back.
        """
        ...

    async def retire(self, worker: int) -> None:
        """A graceful end: what it still holds becomes ready now, without counting as a crash."""
        ...

    async def claim(self, worker: int, agents: list[str], *, limit: int, only: str | None = None) -> list[Claimed]:
        """Take ready runs of these agents, highest priority and longest ready first; status becomes running, epoch grows. `only`: just this id."""
        ...

    async def next_ready(self, agents: list[str], *, only: str | None = None) -> float | None:
        """When the next run nobody holds becomes ready."""
        ...

    async def readmit(self, agents: dict[str, str]) -> int:
        """Runs parked as diverged or no_code whose `code` differs from the digest given for their agent become ready."""
        ...

    async def park_orphans(self, agents: list[str], modules: list[str]) -> list[str]:
        """Park as no_code the ready runs nobody holds whose agent is not in `agents` while their module is in `modules`, or which have begun
        and whose agent no registered worker serves. Their ids.
        """
        ...

    # Control

    async def control(self, id: str, kind: ControlKind, *, body: bytes, by: str) -> RunRow:
        """Record a request for a run (C1). `NotFound`, `Conflict` where it makes no sense. The run afterwards.

        A run that is held: a control row for its worker. One that nobody holds: pause → paused at once; resume of paused or parked → ready now;
        cancel → ready now (cancelled at once if it never began); terminate → cancelled at once, with an Ended record; retry (failed or cancelled only) → ready
        now, result and error cleared; resolve → ready now. Where a worker has something to do, the control row is left for the claim.
        resume also removes a pause that was not yet consumed. pause of a paused run and cancel of a cancelled one change nothing.
        """
        ...

    async def controls(self, worker: int, *, after: int) -> list[ControlRow]:
        """Requests with a higher id for the runs this worker holds, in order."""
        ...

    # Hints and health

    async def changed(self) -> bool:
        """Has another connection written since the last call? May be wrong towards True. Cheap."""
        ...

    def stirred(self) -> bool:
        """Is it worth asking `changed`? Cheaper still, and callable at any time. May be wrong towards True; a store that cannot tell says True."""
        ...

    async def checkpoint(self) -> None:
        """Housekeeping a worker calls after a batch, when everybody has been told and `checkpoint_due` says so."""
        ...

    async def check(self) -> list[str]:
        """Integrity: everything wrong, in plain words; empty if sound."""
        ...

    # May be called at any time, also during another verb

    def checkpoint_due(self) -> bool: ...
