"""What one run has to write: its records and what goes with them, in at most one write at a time (design 1.6.5)."""

from __future__ import annotations

from perdure.base.world import World
from perdure.kernel.activation import Activation
from perdure.store.contract import Progress, Pulse, RunChange, RunRow, RunWrite


class Outbox:
    """The records themselves gather in `activation.out`; here is the rest."""

    def __init__(self, row: RunRow, activation: Activation, world: World) -> None:
        self.committed_seq = row.seq
        self.change: RunChange | None = None  # once set, nothing more happens in the run
        self.urgent = False  # somebody waits for what is delivered next
        self.guarded = False  # the next write is to be refused if newer control exists
        self.controls_seen = 0  # controls up to this id are consumed by the next write
        self.bytes = 0
        self._num = row.num
        self._epoch = row.epoch
        self._activation = activation
        self._now = world.now
        self._progress = row.progress
        self._progress_new = False
        self._pulses: dict[int, bytes | None] = {}
        self._in_flight: RunWrite | None = None

    @property
    def has_records(self) -> bool:
        return bool(self._activation.out) or self.change is not None

    @property
    def has_progress(self) -> bool:
        return self._progress_new

    def pulse(self, position: int, details: bytes | None) -> None:
        self._pulses[position] = details

    def see(self, control: int) -> None:
        """This control request is honoured by what is written next."""
        self.controls_seen = max(self.controls_seen, control)

    def stay(self) -> None:
        """The run was about to rest or to leave; something came before that was written."""
        if self._in_flight is None or self._in_flight.change is None:
            self.change = None

    def progress(self, done: float, total: float | None, current: str | None) -> None:
        old = self._progress
        since, since_done = (old.since, old.since_done) if old and old.since is not None else (self._now(), done)
        self._progress = Progress(done, total, current, since, since_done)
        self._progress_new = True

    def take(self, newest_control: int | None) -> RunWrite | None:
        """Everything there is to write now; refused if control newer than this is there, where it is guarded."""
        activation = self._activation
        records = activation.out
        if self._in_flight is not None:
            return None
        more = self.change or self._pulses or self._progress_new or self.controls_seen
        if not more and not records:
            return None
        if not more and not self.guarded:
            write = RunWrite(self._num, self._epoch, self.committed_seq + 1, records)
        else:
            write = RunWrite(
                num=self._num,
                epoch=self._epoch,
                seq=self.committed_seq + 1,
                records=records,
                change=self.change,
                progress=self._progress if self._progress_new else None,
                pulses=[Pulse(position, details) for position, details in self._pulses.items()],
                controls_seen=self.controls_seen,
                unless_control=newest_control,
            )
            self._pulses = {}
            self._progress_new = self.guarded = False
            self.controls_seen = 0
        self.bytes = sum(map(len, records))
        activation.out = []
        self.urgent = False
        self._in_flight = write
        return write

    def put_back(self) -> None:
        """The write did not happen: it goes first next time."""
        write, self._in_flight = self._in_flight, None
        if write is None:
            return
        self._activation.out = write.records + self._activation.out
        for pulse in write.pulses:
            self._pulses.setdefault(pulse.position, pulse.details)
        self._progress_new = self._progress_new or write.progress is not None
        self.see(write.controls_seen)
        self.guarded = self.guarded or write.unless_control is not None

    def done(self) -> RunWrite | None:
        """The write is durable."""
        write, self._in_flight = self._in_flight, None
        if write is not None:
            self.committed_seq += len(write.records)
        return write
