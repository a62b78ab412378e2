"""A worker: claims runs, executes them, writes for them, and lets go of them. One duty per loop; all loops start and stop the same way.

L1. Every write carries worker and epoch. A worker that was buried loses all its runs at once and comes back under a new number.
L2. No effect starts unless the lease is valid by a margin on a monotonic clock.
C1. Control is polled as well as hinted; polling alone is correct.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context

from perdure.base import limits
from perdure.base.status import Reason, Status
from perdure.base.world import World
from perdure.errors import LeaseLost, PerdureError, StoreDamaged, StoreUnavailable
from perdure.events.bus import Event, Events, RunClaimed, RunReleased, StoreChanged, WorkerBuried, WorkerFailed
from perdure.events.bus import LeaseLost as LeaseLostEvent
from perdure.kernel.spec import AgentSpec
from perdure.store.contract import Claimed, ControlRow, NewRun, RunRow, Store
from perdure.worker import neighbours
from perdure.worker.deadlines import Deadlines
from perdure.worker.execution import Execution
from perdure.worker.lease import Lease
from perdure.worker.processes import ProcessPool
from perdure.worker.services import Services
from perdure.worker.threads import ThreadPool
from perdure.worker.writer import Writer

log = logging.getLogger("perdure.worker")


class Worker:
    """`agents` is looked at anew for every claim: what is registered later is served too."""

    def __init__(
        self,
        store: Store,
        world: World,
        agents: Mapping[str, AgentSpec],
        *,
        events: Events | None = None,
        lease_ttl_s: float = limits.lease_ttl_s,
        only: str | None = None,
    ) -> None:
        self.store = store
        self.world = world
        self.events = events or Events()
        self.number = 0
        self.running: dict[int, Execution] = {}
        self._arriving: dict[int, Claimed] = {}  # claimed, not in memory yet
        self.failure: BaseException | None = None
        self._agents = agents
        self._only = only
        self._lease = Lease(world, lease_ttl_s)
        self._name = world.name()
        context = copy_context()
        self._writer = Writer(store, self.events, self, context)
        self._deadlines = Deadlines(world.monotonic)
        self._services = Services(
            world=world,
            events=self.events,
            writer=self._writer,
            lease=self._lease,
            deadlines=self._deadlines,
            threads=ThreadPool(),
            processes=ProcessPool(),
            context=context,
            gone=self._forget,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._bell = asyncio.Event()
        self._poller: asyncio.TimerHandle | None = None
        self._coming_back = asyncio.Lock()
        self._taking = asyncio.Lock()  # C1: no request is handed out while a run it may be for is on its way here
        self._stopping = False
        self._next_ready: float | None = 0.0
        self._overtaken = False  # something became ready since the store was asked when
        self._served: dict[str, str] = {}
        self._unsubscribe = self.events.subscribe(self._notice)

    # Life

    async def start(self) -> None:
        await self._register()
        self._writer.on_lease_lost = self._come_back
        await self._scan_neighbours()
        for duty in (self._writer.run, self._attend, self._renew, self._watch_neighbours):
            self._tasks.append(self.world.spawn(self._on_duty(duty)))
        self._poll()

    async def stop(self, grace_s: float = limits.grace_s) -> None:
        """Finish what runs, within the grace time; hand the runs back; leave."""
        self._stopping = True
        self._bell.set()
        until = self.world.monotonic() + grace_s
        for run in list(self.running.values()):
            run.hand_back()
        while self.running and self.failure is None and self.world.monotonic() < until:  # noqa: ASYNC110  # runs leave in many ways
            await asyncio.sleep(limits.poll_s)
        await self.leave()

    async def leave(self) -> None:
        """At once: what still runs is interrupted, and its rule decides when it is taken up again. What is known by now is written, once."""
        self._stopping = True
        for run in list(self.running.values()):
            run.cut_short()
        self._writer.close()
        if self._poller is not None:
            self._poller.cancel()
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for run in list(self.running.values()):
            run.vanish()
        self._deadlines.close()
        self._services.threads.close()
        self._services.processes.close()
        self._unsubscribe()
        try:
            await self.store.retire(self.number)
        except (LeaseLost, StoreUnavailable) as exc:
            log.warning("the worker could not sign off: %s", exc)

    async def _on_duty(self, duty: Callable[[], Awaitable[None]]) -> None:
        """Keep one loop going: the store may be away, the lease may be lost; anything else stops the worker."""
        while True:
            try:
                try:
                    await duty()
                except LeaseLost:
                    await self._come_back()  # for which the store may be away
                else:
                    return
            except StoreUnavailable as exc:
                log.error("%s: %s", duty.__name__, exc)  # noqa: TRY400  # a store that is away is no surprise to trace
                await asyncio.sleep(0.2)
            except Exception as exc:
                duty_name = duty.__name__.strip("_")
                if isinstance(exc, PerdureError):  # it says what is wrong; a trace would hide it
                    log.error("the worker stops: %s failed: %s", duty_name, exc)  # noqa: TRY400  # as above
                else:
                    log.exception("the worker stops: %s failed", duty_name)
                self.failure = exc
                self._bell.set()
                self.events.emit(WorkerFailed(str(exc)))
                for run in list(self.running.values()):
                    run.vanish()
                return

    async def _register(self) -> None:
        self._served = self._digests()
        sent = self._lease.sent()
        info = neighbours.this_process(
            self._name, self._served, sorted({spec.module for spec in self._agents.values()})
        )
        self.number = await self.store.register(info, ttl_s=self._lease.ttl_s)
        await self.store.readmit(self._served)
        self._writer.worker = self.number
        self._lease.renewed(sent)
        self._look_again()

    async def _come_back(self) -> None:
        """This worker was buried (frozen too long, or the store was away). What it held is no longer its own."""
        lost = self.number
        async with self._coming_back:  # several loops may notice at once
            if self.number == lost:
                await self._start_over(lost)

    async def _start_over(self, lost: int) -> None:
        log.error("worker %d lost its lease; its runs were taken over", lost)
        self.events.emit(LeaseLostEvent(lost))
        self._arriving.clear()
        for run in list(self.running.values()):
            run.lost()
        self._writer.forget_all()
        if not self._stopping:
            await self._register()

    def _digests(self) -> dict[str, str]:
        return {name: spec.digest for name, spec in self._agents.items()}

    # Duties

    async def _attend(self) -> None:
        """Look for control and for runs that are ready, whenever the bell rings."""
        while not self._stopping:
            self._bell.clear()
            changed = await self.store.changed()
            if changed:
                self.events.emit(StoreChanged())
                await self.mark(0)
                self._look_again()
            await self._take_up_all()  # the store was away when they were claimed
            if self._is_due():
                await self._claim()
            await asyncio.sleep(0)
            await self._bell.wait()

    def _poll(self) -> None:
        """Ring the bell when there may be something to do. Runs often, so it does next to nothing."""
        if self._stopping:
            return
        if self.store.stirred() or self._is_due() or self._arriving:
            self._bell.set()
        self._poller = asyncio.get_running_loop().call_later(limits.poll_s, self._poll)

    def _is_due(self) -> bool:
        return (
            self._next_ready is not None
            and self._next_ready <= self.world.now()
            and len(self.running) < limits.active_runs_max
        )

    async def _claim(self) -> None:
        room = min(limits.active_runs_max - len(self.running), limits.claim_runs_max)
        if room <= 0 or not self._lease.valid():
            return
        names = list(self._agents)
        async with self._taking:
            claimed = await self.store.claim(self.number, names, limit=room, only=self._only)
            self._arriving |= {item.run.num: item for item in claimed}
        await self._take_up_all()
        if len(claimed) < room:
            self._overtaken = False
            ready_at = await self.store.next_ready(names, only=self._only)
            if not self._overtaken:
                self._next_ready = ready_at

    async def admit(self, new: NewRun) -> tuple[RunRow, bool]:
        """Record a run, and execute it here if it is new, ready and there is room. True if it is new."""
        takes = self._has_room() and self._only in (None, new.id)
        async with self._taking:
            claimed, created = await self.store.create(new, worker=self.number if takes else None)
            row = claimed.run
            taken = created and takes and row.worker == self.number
            if taken:
                self._arriving[row.num] = claimed
        if taken:
            await self._take_up(claimed)
        elif created:
            self.knock()
        return row, created

    async def _take_up(self, claimed: Claimed) -> None:
        """Execute a run that the store says is ours; control that comes meanwhile is added to what arrives (C1)."""
        row = claimed.run
        agent = self._agents[row.agent]
        journal: list[bytes] = []
        pulses: dict[int, bytes | None] = {}
        damage: StoreDamaged | None = None
        if row.seq:
            try:
                journal = await self.store.journal(row.num)
            except StoreDamaged as exc:
                damage = exc
            pulses = {position: details for position, (_, details) in (await self.store.pulses(row.num)).items()}
        if self._arriving.get(row.num) is not claimed or self._stopping:
            return  # taken up by another loop, lost meanwhile, or to be handed back as it is
        del self._arriving[row.num]
        run = Execution(self._services, agent, claimed)
        self.running[row.num] = run
        self.events.emit(RunClaimed(row.id, row.epoch))
        if damage is not None:
            run.park_damaged(damage, claimed.controls)
        else:
            run.open(journal, pulses, claimed.controls)

    async def _take_up_all(self) -> None:
        for num, item in list(self._arriving.items()):
            if self._arriving.get(num) is item:
                await self._take_up(item)

    async def mark(self, control_mark: int) -> None:
        """Hand out the control rows that are new; before that, no effect starts over them (C1)."""
        async with self._taking:
            rows = await self.store.controls(self.number, after=self._writer.mark_seen)
            asked: dict[int, list[ControlRow]] = {}
            for row in rows:
                asked.setdefault(row.run, []).append(row)
            for num, requests in asked.items():
                run = self.running.get(num)
                if run is not None:
                    run.heed(requests)
                elif num in self._arriving:
                    self._arriving[num].controls.extend(requests)
            self._writer.mark_seen = max(self._writer.mark_seen, control_mark, *(row.id for row in rows))

    async def _renew(self) -> None:
        while True:  # also while the worker stops: what it finishes within the grace time must still be its own
            await asyncio.sleep(self._lease.every_s())
            digests = self._digests()
            news = digests if digests != self._served else None
            sent = self._lease.sent()
            await self.store.renew(self.number, ttl_s=self._lease.ttl_s, agents=news)
            if news is not None:
                await self.store.readmit(news)
            self._served = digests
            self._lease.renewed(sent)
            await self.mark(0)  # C1: what has waited for the lease may start now
            for run in list(self.running.values()):
                run.go_on()

    async def _watch_neighbours(self) -> None:
        while not self._stopping:
            await asyncio.sleep(limits.dead_scan_s)
            await self._scan_neighbours()

    async def _scan_neighbours(self) -> None:
        workers = await self.store.workers()
        for worker in workers:
            if worker.num == self.number:
                continue
            runs = await self.store.bury(worker.num, dead=neighbours.is_dead(worker))
            if runs is not None:
                if runs:
                    log.warning("worker %d is gone; %d of its runs go on elsewhere", worker.num, len(runs))
                self.events.emit(WorkerBuried(worker.num, runs))
                self._look_again()
        if self._only is None:
            modules = sorted({spec.module for spec in self._agents.values()})
            for run_id in await self.store.park_orphans(list(self._agents), modules):
                self.events.emit(RunReleased(run_id, Status.PARKED, Reason.NO_CODE))

    # Bookkeeping

    def _forget(self, num: int) -> None:
        self.running.pop(num, None)

    def _notice(self, event: Event) -> None:
        if isinstance(event, RunReleased):
            self._look_again()

    def _look_again(self) -> None:
        self._next_ready, self._overtaken = 0.0, True

    def knock(self) -> None:
        """Something in this process made a run ready."""
        self._look_again()
        self._bell.set()

    def _has_room(self) -> bool:
        return not self._stopping and len(self.running) < limits.active_runs_max and self._lease.valid()

    async def wait_idle(self, horizon_s: float) -> None:
        """Until nothing runs here and nothing becomes ready within the horizon."""
        while self.failure is None:
            async with self._taking:  # else a run on its way here is neither in the store nor in memory
                if not self.running and not self._arriving:
                    ready = await self.store.next_ready(list(self._agents), only=self._only)
                    if ready is None or ready > self.world.now() + horizon_s:
                        return
            await asyncio.sleep(0.01)
        raise self.failure
