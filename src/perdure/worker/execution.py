"""One run in this worker's memory: its activation, its steps, what is to be written, and how it leaves.

C1. A control request is honoured before any new effect.
J5. All that enters the run's loop goes through `deliver`.

A run is `free` to start effects until it is asked to stand: paused, parked, cancelled for good, or handed back. Then what runs is finished
and recorded, and the run is released in one commit.
"""

from __future__ import annotations

import asyncio
import logging

from perdure.base import codec, faults, limits
from perdure.base.records import AnyRecord, Ended, ErrorData, Fired, Rested, decode_record, encode_record
from perdure.base.status import ControlKind, Reason, Status
from perdure.errors import Diverged, PerdureError, StoreDamaged
from perdure.events.bus import RunEnded, RunLost, RunReleased
from perdure.kernel.activation import Activation
from perdure.kernel.ask import Ask
from perdure.kernel.failure import error_data
from perdure.kernel.guard.scan import check_agent
from perdure.kernel.spec import AgentSpec
from perdure.kernel.superseded import plan_retry
from perdure.store.contract import Claimed, ControlRow, RunChange, RunWrite
from perdure.worker.effects import Effects
from perdure.worker.outbox import Outbox
from perdure.worker.services import Services
from perdure.worker.steering import Steering

log = logging.getLogger("perdure.worker")

_LEFT = faults.point("run.left", "the run's end or rest is durable, nobody has been told")


class Execution:
    def __init__(self, services: Services, agent: AgentSpec, claimed: Claimed) -> None:
        row = claimed.run
        self.services = services
        self.row = row
        self.now = services.world.now
        self.id = row.id
        self.num = row.num
        self.epoch = row.epoch
        self.activation = Activation(row.id, agent, row.input)
        self.deliver = self.activation.deliver  # `after` must follow
        self.outbox = Outbox(row, self.activation, services.world)
        self.effects = Effects(self)
        self.dead = False
        self._agent = agent
        self.stand: RunChange | None = None  # how it is to be released, once nothing runs
        self._left: list[Ask] = []
        self._steering = Steering(agent.digest)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # Coming in

    def open(self, journal: list[bytes], pulses: dict[int, bytes | None], controls: list[ControlRow]) -> None:
        """Replay, then go on: control first, then what an earlier process left open, then the agent."""
        self.effects.details.update(pulses)
        try:
            self._replay(journal, controls)
        except Diverged as diverged:
            self._park_diverged(diverged, controls)
            return
        except StoreDamaged as damaged:
            self.park_damaged(damaged, controls)
            return
        except Exception as exc:  # noqa: BLE001  # whatever replay stumbles over must not take the worker down
            self.broken(exc)
            return
        new = {id(ask) for ask in self.activation.new_asks}
        self._left = [ask for ask in self.activation.open.values() if id(ask) not in new]
        self.heed(controls)

    def _recover_left(self) -> None:
        """What an earlier process left open: its rules decide, as soon as the run may start effects (C1)."""
        if not self.free or self.activation.ended is not None:
            return
        left, self._left = self._left, []
        for ask in left:
            if ask.position in self.activation.open and not self.effects.has(ask):
                self.effects.recover(ask)

    def recover_later(self, ask: Ask) -> None:
        """It cannot go on while the run stands."""
        self._left.append(ask)

    def _replay(self, journal: list[bytes], controls: list[ControlRow]) -> None:
        check_agent(self._agent.fn)
        if not journal:
            self.activation.begin(self.now(), self.services.world.seed())
            return
        numbered, again = [decode_record(data) for data in journal], list[AnyRecord]()
        retry = next((row for row in controls if row.kind is ControlKind.RETRY), None)
        if retry is not None and any(isinstance(record, Ended) for record in numbered):
            retried, *again = plan_retry(numbered, at=self.now(), by=retry.by)
            numbered.append(retried)
            self.activation.out.append(encode_record(retried))
        self.activation.feed(numbered, again)
        if self.activation.main_coro() is None and self.activation.ended is None:
            self.activation.begin(self.now(), self.services.world.seed())  # it was terminated before it began

    # Going on

    @property
    def free(self) -> bool:
        """May it start effects?"""
        return self.stand is None and self.outbox.change is None and not self.dead

    @property
    def backlogged(self) -> bool:
        """So much is unwritten that even reads should wait for the store."""
        return len(self.activation.out) > limits.batch_records_max or self.services.writer.troubled is not None

    def after(self) -> None:
        """Collect what the agent asks for now, hand the records to the writer, see whether the run rests or ends."""
        if self.dead or self.outbox.change is not None:
            return
        activation, effects = self.activation, self.effects
        while activation.new_asks or activation.stops:
            asks, activation.new_asks = activation.new_asks, []
            stops, activation.stops = activation.stops, []
            for ask in asks:
                if ask.position in activation.open:
                    effects.add(ask)
            for ask in stops:
                effects.stop(ask)
        if activation.progress is not None:
            said, activation.progress = activation.progress, None
            self.outbox.progress(*said)
        if activation.ended is not None:
            self._finish(activation.ended)
        elif not effects.running and (self.stand is not None or not effects.busy):
            self._rest()
        elif self.stand is None and (activation.loop.has_timers or effects.backoffs):
            self._arm()
        if activation.out or self.outbox.change is not None:
            urgent = self.outbox.urgent or self.outbox.change is not None or bool(effects.waiting or effects.marked)
            self.services.writer.add(self, urgent=urgent)
        elif self.outbox.has_progress:
            self.services.writer.add(self, urgent=False)

    def _finish(self, ended: Ended) -> None:
        self.effects.kill_all()
        self.outbox.change = RunChange(
            status=Status(ended.status), result=ended.result, error=ended.error, release=True, code=self._agent.digest
        )
        self.outbox.see(self._steering.on_release)

    def _rest(self) -> None:
        """Nothing runs: stand as asked, or wait; a short wait is spent in memory."""
        doubted = next((ask for ask in self.activation.open.values() if ask.doubted), None)
        if doubted is not None:
            self.park_in_doubt(doubted, doubted.doubted)
        if self.stand is not None:
            self._release(self.stand)
            return
        timer = self.activation.loop.next_timer()
        retry_at = self.effects.next_retry()
        wake_at = min((t for t in (timer.due if timer else None, retry_at) if t is not None), default=None)
        if wake_at is not None and wake_at - self.now() < limits.idle_stay_s:
            self._arm()
            return
        waiting_on = "step" if self.effects.backoffs else "timer" if timer else None
        if wake_at is None:
            log.warning(
                "run %s waits for something that nothing will bring: no step, timer or message is open", self.id
            )
        self._release(
            RunChange(Status.WAITING, waiting_on=waiting_on, ready_at=wake_at, release=True, code=self._agent.digest)
        )

    def _release(self, change: RunChange) -> None:
        self.effects.hold_back()  # what has marked its start and will not begin now is not in doubt later
        if change.status is Status.WAITING or change.status is Status.PAUSED:
            self.deliver(Rested(self.now(), self.activation.asked, self.activation.loop.timers_made, change.ready_at))
        self.outbox.change = change
        self.outbox.guarded = True
        self.outbox.see(self._steering.on_release)
        self._disarm()

    # Time

    def _arm(self) -> None:
        timer = self.activation.loop.next_timer()
        retry_at = self.effects.next_retry() if self.effects.backoffs else None
        if timer is None and retry_at is None:
            return
        wake_at = min(t for t in (timer.due if timer else None, retry_at) if t is not None)
        if self._timer is not None:
            if self._timer_at <= wake_at:
                return
            self._timer.cancel()
        self._timer_at = wake_at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wake_at - self.now()), self._on_time)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        if not self.free:
            return
        try:
            now = self.now()
            while (timer := self.activation.loop.next_timer()) is not None and timer.due <= now:
                self.deliver(Fired(now, timer.number))
                if self.activation.ended is not None:
                    break
            self.after()
            if self.free:
                self.effects.start_due(now)
                self.after()
        except Exception as exc:  # noqa: BLE001  # a fault of the runtime must not be lost in a callback
            self.broken(exc)

    # Writing

    def guard_next_write(self) -> None:
        """The next write is to be refused if newer control exists."""
        self.outbox.guarded = True

    def pulse(self, position: int, details: bytes | None) -> None:
        self.outbox.pulse(position, details)
        self.services.writer.add(self, urgent=False)

    def take_write(self) -> RunWrite | None:
        """For the writer: everything there is to write now."""
        if self.dead:
            return None
        outbox = self.outbox
        return outbox.take(max(self.services.writer.mark_seen, self._steering.last) if outbox.guarded else None)

    def write_back(self) -> None:
        """The write did not happen."""
        self.outbox.put_back()

    def committed(self) -> None:
        """The write is durable."""
        write = self.outbox.done()
        if self.dead or write is None:
            return
        if write.change is not None and write.change.release:
            self._leave(write.change)
            return
        try:
            self.effects.start_durable()
            if not self.effects.running or self.activation.out:
                self.after()
        except Exception as exc:  # noqa: BLE001  # as in Effects
            self.broken(exc)
        if self.outbox.has_records:
            self.services.writer.add(self, urgent=True)

    def go_on(self) -> None:
        """The lease holds again: what waited for it may start."""
        if self.dead:
            return
        try:
            self.effects.start_durable()
            self.after()
        except Exception as exc:  # noqa: BLE001  # as in Effects
            self.broken(exc)

    def held_back(self) -> None:
        """The write was refused because newer control exists; that control has been handed out by now."""
        self.write_back()
        if self.dead:
            return
        self.outbox.guarded = False
        if self.activation.ended is not None or not self.activation.loop.dead:
            self.outbox.change = None  # It was about to rest; now it looks again. The control may have ended it.
        if not self.free:
            self.effects.hold_back()
        self._recover_left()
        self.after()
        self.services.writer.add(self, urgent=True)

    # Control

    def control(self, row: ControlRow) -> None:
        """A person's request (C1). A run that is being handed back leaves it to its next worker; one that cannot be replayed, to other code."""
        if self.dead or self.activation.ended is not None or (self.stand and self.stand.status is Status.QUEUED):
            return
        if self.activation.loop.dead and row.kind is not ControlKind.TERMINATE:
            return
        self.outbox.stay()  # else the request would be consumed by a write that lets go of the run
        self._steering.take(self, row)

    def heed(self, rows: list[ControlRow]) -> None:
        """Control that came while the run is here. All of it comes before any effect: the last word may be a pause."""
        try:
            for row in rows:
                self.control(row)
            self._recover_left()
            self.after()
            if self.free:
                self.effects.start_durable()
                self.after()
        except Exception as exc:  # noqa: BLE001  # as in Effects
            self.broken(exc)
        if not self.dead and (self.outbox.controls_seen or self.outbox.has_records):
            self.services.writer.add(self, urgent=True)

    def park_in_doubt(self, ask: Ask, why: str) -> None:
        error = ErrorData("InDoubt", f"step {ask.position} {ask.name}: {why}", step=ask.name, position=ask.position)
        if self.stand is None:  # else it stands already, and comes back to this when it goes on
            self.stand = RunChange(
                Status.PARKED, reason=Reason.IN_DOUBT, error=error, release=True, code=self._agent.digest
            )

    def hand_back(self) -> None:
        """A graceful stop: what runs is finished, then the run is free for other workers."""
        if self.outbox.change is None and not self.dead and self.activation.ended is None and self.stand is None:
            self.stand = RunChange(Status.QUEUED, ready_at=self.now(), release=True)
            self.after()

    def cut_short(self) -> None:
        """The time to finish is over: what still runs is interrupted, and what is known by now is written."""
        try:
            self.hand_back()
            if not self.dead:
                self.effects.kill_all()
                self.after()
        except Exception as exc:  # noqa: BLE001  # as in Effects
            self.broken(exc)

    # Leaving

    def _park_diverged(self, diverged: Diverged, controls: list[ControlRow]) -> None:
        log.error("%s", diverged)
        error = ErrorData("Diverged", str(diverged), data=codec.encode(diverged.data))
        self._park_unreplayable(Reason.DIVERGED, error, controls)

    def park_damaged(self, damaged: StoreDamaged, controls: list[ControlRow]) -> None:
        """Its journal cannot be trusted: the run stands for a person to see, and the others go on."""
        log.error("%s", damaged)
        self._park_unreplayable(Reason.STORE, ErrorData("StoreDamaged", str(damaged)), controls)

    def _park_unreplayable(self, reason: Reason, error: ErrorData, controls: list[ControlRow]) -> None:
        self.activation.out = []
        self.outbox.change = RunChange(Status.PARKED, reason=reason, error=error, release=True, code=self._agent.digest)
        self.activation.drop()
        self.heed(controls)
        self.services.writer.add(self, urgent=True)

    def broken(self, exc: Exception) -> None:
        """The runtime or the agent's own loop failed in a way no agent can catch: the run fails, and says so."""
        if self.dead:
            return
        if isinstance(exc, Diverged):
            self.effects.kill_all()
            self._park_diverged(exc, [])
            return
        log.error(
            "run %s failed outside its agent's code",
            self.id,
            exc_info=exc if not isinstance(exc, PerdureError) else None,
        )
        self.effects.kill_all()
        self.activation.loop.drop()
        self.activation.fail(Ended(self.now(), Status.FAILED, error=error_data(exc)))
        assert self.activation.ended is not None
        self._finish(self.activation.ended)
        self.services.writer.add(self, urgent=True)

    def lost(self) -> None:
        """Another worker holds the run: nothing that happened here after that counts."""
        if not self.dead:
            self.services.events.emit(RunLost(self.id))
            log.warning("run %s is held by another worker now; this one stops it", self.id)
            self.vanish()

    def vanish(self) -> None:
        """Leave memory without a word."""
        if self.dead:
            return
        self.dead = True
        self._disarm()
        self.effects.close()
        self.activation.drop()
        self.services.gone(self.num)

    def _leave(self, change: RunChange) -> None:
        if faults.armed:
            faults.hit(_LEFT, change.status)
        self.vanish()
        events = self.services.events
        if change.status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            events.emit(RunEnded(self.id, change.status))
        else:
            events.emit(RunReleased(self.id, change.status, change.reason))
