"""One run in memory: its agent's coroutine, the journal it has consumed, and what it asks for.

J3. A recorded result is returned, never recomputed; replay calls nothing outside.
J4. The key of a step that is not a read is a function of run and position alone.
J5. All that enters the run's loop is a record, delivered in journal order; between two deliveries the loop is quiet.

Live and replay are one mechanism: `_apply(record)` changes the state and pumps. Live, the record is new and what the agent asks for becomes
records too; on replay the record comes from the journal, and what the agent asks for must be the journal's next records.
"""

from __future__ import annotations

import asyncio
import platform
import random
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any

from perdure.base import codec
from perdure.base.records import (
    AnyRecord,
    Asked,
    Begun,
    Cancelled,
    Doubted,
    Ended,
    Executed,
    Fired,
    Noted,
    Patched,
    Resolved,
    Rested,
    Retried,
    Started,
    Tried,
    encode_record,
)
from perdure.errors import NotStorable, PayloadTooLarge, Suspend
from perdure.kernel import divergence
from perdure.kernel.ask import Ask
from perdure.kernel.failure import error_data, raise_as
from perdure.kernel.generators import close_in_order
from perdure.kernel.loop import RunLoop, RunTask
from perdure.kernel.patches import recorded
from perdure.kernel.spec import AgentSpec, StepSpec
from perdure.kernel.superseded import effective

PYTHON = ".".join(platform.python_version_tuple()[:2])


class Activation:
    """See the module's docstring. `feed` replays; `begin` and `deliver` go on live; `out`, `new_asks` and `stops` say what is to be written and done."""

    def __init__(self, run_id: str, agent: AgentSpec, input_bytes: bytes) -> None:
        self.run_id = run_id
        self.agent = agent
        self.loop = RunLoop(self)
        self.replaying = True
        self.open: dict[int, Ask] = {}
        self.ended: Ended | None = None
        self.notes: list[Noted] = []
        self.asked = 0  # positions given out
        self.seq = 0  # number of the last record, fed or made
        self.progress: tuple[float, float | None, str | None] | None = None
        self.last_step: tuple[int, str] | None = None
        self._input = input_bytes
        self._main: RunTask | None = None
        self._settling = False
        self._main_done_at = 0
        self._delivered_at = 0
        self._patches: dict[str, bool] = {}
        self._absorbed: list[Ask] = []
        self._emitted: deque[Ask | Patched] = deque()
        self._journal: list[AnyRecord] = []
        self._numbers: dict[int, int] | None = None
        self._cursor = 0
        self.out: list[bytes] = []  # new records, encoded, in order; the worker takes them
        self.new_asks: list[Ask] = []  # asks that are new in `out`
        self.stops: list[Ask] = []  # asks whose outcome is not wanted any more
        self._random: random.Random | None = None
        self._uuids: random.Random | None = None
        self._seed = 0

    # Replay

    def feed(self, numbered: list[AnyRecord], again: Iterable[AnyRecord] = ()) -> None:
        """Replay a journal from its first record; raises `Diverged` where the code asks for something else. `again`: what is new, but had happened."""
        journal = self._journal = effective(numbered)
        self._numbers = (
            {id(record): number for number, record in enumerate(numbered, 1)} if journal is not numbered else None
        )
        for self._cursor, record in enumerate(journal):
            match record:
                case Asked():
                    self._match_ask(record)
                case Patched():
                    pass  # `patched` has looked ahead for it.
                case _:
                    if self._emitted:
                        raise divergence.added(self, self._emitted[0], record)
                    self._apply(record)
        self.seq = len(numbered)
        self.replaying = False
        self._journal = []
        emitted, self._emitted = self._emitted, deque()
        # What the journal knows is not running yet; what is new may be unwanted already.
        self.stops = [ask for ask in self.stops if ask in emitted]
        for item in emitted:
            self._emit(item)
        for record in again:
            if not isinstance(record, Executed) or record.position in self.open:
                self.deliver(record)
        self._check_end()

    def _number_now(self) -> int:
        """The number, in the whole journal, of the record that is being replayed."""
        return self._numbers[id(self._journal[self._cursor])] if self._numbers else self._cursor + 1

    def _match_ask(self, record: Asked) -> None:
        if not self._emitted:
            raise divergence.removed(self, record)
        ask = self._emitted.popleft()
        if (
            not isinstance(ask, Ask)
            or ask.position != record.position
            or ask.name != record.name
            or ask.args != record.args
            or ask.what != record.what
        ):
            raise divergence.changed(self, ask, record)
        ask.recorded_as(record.effect, probe=record.probe)
        self.last_step = (record.position, record.name)

    # Live

    def begin(self, at: float, seed: int) -> None:
        """The run's first activation ever: there is no journal yet."""
        self.replaying = False
        self.deliver(Begun(at, PYTHON, self.agent.digest, seed))

    def deliver(self, record: AnyRecord) -> None:
        """A new record: write it down, then let the agent go on with it."""
        self.seq += 1
        self.out.append(encode_record(record))
        self._delivered_at = self.seq
        self._apply(record)
        main = self._main
        if main is not None and main.done():
            self._check_end()

    def take(self) -> tuple[list[bytes], list[Ask], list[Ask]]:
        """New records in order; asks to start; asks to stop."""
        taken = self.out, self.new_asks, self.stops
        self.out, self.new_asks, self.stops = [], [], []
        return taken

    def fail(self, ended: Ended) -> None:
        """End it from outside, whatever its code is doing."""
        self.ended = ended
        self._write(ended)

    def drop(self) -> None:
        """Leave memory. Nothing the agent's cleanup code does has an effect."""
        self.loop.drop()
        self._main = None  # with its exception, whose frames lead back here
        while self.open:
            self.open.popitem()[1].close()

    def _write(self, record: AnyRecord) -> None:
        self.seq += 1
        self.out.append(encode_record(record))

    def _emit(self, item: Ask | Patched) -> None:
        if self.replaying:
            self._emitted.append(item)
            return
        if isinstance(item, Patched):
            self._write(item)
            return
        self.seq += 1
        asked = Asked(self.loop.now, item.position, item.what, item.name, item.effect, item.args, item.probe)
        self.out.append(encode_record(asked))
        item.seq = self.seq
        self.new_asks.append(item)

    # What a record does, live and on replay

    def _apply(self, record: AnyRecord) -> None:
        if record.at > self.loop.now:  # noqa: PLR1730  # `max` costs more than all the rest of a quiet record
            self.loop.now = record.at
        match record:
            case Executed():
                self._finish(record)
            case Fired():
                if not self.loop.fire(record.timer, record.at):
                    raise divergence.no_timer(self, record)
                self._pump()
            case Begun():
                self._start(record)
            case Started():
                self._open(record.position, record).starts(record)
            case Tried():
                self._open(record.position, record).failed(record)
            case Doubted():
                self._open(record.position, record).doubted = record.why or "?"
            case Resolved():
                ask = self._open(record.position, record)
                ask.resolved = record
                ask.doubted = ""
                if record.verdict == "retry":
                    ask.started = False
            case Noted():
                self.notes.append(record)
            case Cancelled():
                self._cancel_main()
            case Rested():
                if (record.asked, record.timers) != (self.asked, self.loop.timers_made):
                    raise divergence.rested(self, record)
            case Retried():
                self.asked = max(self.asked, record.positions)
                for position in record.reopened:
                    self._open(position, record).reopen()
            case Ended():
                self.ended = record
            case _:
                pass  # Asked and Patched are made by the agent, not applied to it.

    def _open(self, position: int, record: AnyRecord) -> Ask:
        ask = self.open.get(position)
        if ask is None:
            raise divergence.not_open(self, position, record)
        return ask

    def _start(self, record: Begun) -> None:
        self._seed = record.seed
        args, kwargs = codec.decode(self._input)  # type: ignore[misc]  # written by `input_of`
        # An empty context: what the submitter's context held would not be there after a restart.
        self._main = RunTask(_call(self.agent.fn, args, kwargs), self.loop, "main", Context())
        self.loop.adopt(self._main)
        self._pump()

    def _finish(self, record: Executed) -> None:
        ask = self.open.pop(record.position, None)
        if ask is None:
            raise divergence.not_open(self, record.position, record)
        future = ask.close()
        if future.done():
            return
        if record.cancelled or (ask.stop_wanted and not self._outcome_counts(ask)):
            future.give_up(ask.cancel_msg)
        elif record.error is not None:
            future.set_exception(raise_as(record.error, ask.spec.raises if ask.spec else ()))
        else:
            future.set_result(codec.decode(record.result) if record.result is not None else None)
        if ask.stop_wanted and not future.cancelled():
            self._absorbed.append(ask)
        self._pump()

    def _outcome_counts(self, ask: Ask) -> bool:
        """Does the awaiter get the outcome that a cancelled step had all the same?
        A task that is nothing but this step ends with it; where time ran out the code must know, or would do it twice.
        Any other cancellation strikes here, as on every loop, so that `finally` blocks can await steps.
        """
        coro: Any = ask.task.get_coro() if ask.task else None
        return ask.stop_by_timeout or getattr(coro, "cr_code", None) is Activation.step.__code__

    def _pump(self) -> None:
        self.loop.pump()
        while self._absorbed:
            self._redeliver_cancels()
            self.loop.pump()
        if self._main is not None and self._main.done():
            self._wind_up()

    def _redeliver_cancels(self) -> None:
        """A timeout that met a running effect let its outcome through. If its scope is still open, it strikes at the next wait."""
        absorbed, self._absorbed = self._absorbed, []
        for ask in absorbed:
            task = ask.task
            if task is not None and not task.done() and task.cancelling() >= ask.stop_level > 0:
                task.uncancel()
                task.cancel()

    def _cancel_main(self) -> None:
        if self._main is not None and not self._main.done():
            self._main.cancel()
            self._pump()

    # The end

    def _wind_up(self) -> None:
        """The agent returned. What it left running is cancelled and waited for, then its generators are closed; both in creation order."""
        loop = self.loop
        if not self._settling:
            self._settling = True
            self._main_done_at = self._number_now() if self.replaying else self._delivered_at
            for task in loop.live_tasks():
                task.cancel()
            self._pump()
        elif not loop.live_tasks():
            generators = loop.take_generators()
            if generators:
                loop.adopt(RunTask(close_in_order(generators), loop, "close-generators", Context()))
                self._pump()

    def _check_end(self) -> None:
        """Live only: has the run come to its end?"""
        main = self._main
        if main is None or not main.done() or self.ended is not None or self.loop.live_tasks() or self.open_effects():
            return
        self.ended = self._outcome(main)
        self._write(self.ended)

    def open_effects(self) -> bool:
        return any(not ask.future.cancelled() for ask in self.open.values())

    def _outcome(self, main: RunTask) -> Ended:
        now, done_at = self.loop.now, self._main_done_at
        if main.cancelled():
            return Ended(now, "cancelled", main_done_at=done_at)
        exc = main.exception()
        if exc is not None:
            return Ended(now, "failed", error=error_data(exc), main_done_at=done_at)
        try:
            return Ended(now, "completed", result=codec.encode(main.result()), main_done_at=done_at)
        except (NotStorable, PayloadTooLarge) as refused:
            return Ended(now, "failed", error=error_data(refused), main_done_at=done_at)

    # What agent code calls

    def alive(self) -> None:
        if self.loop.dead:
            raise Suspend.make()

    async def step(self, spec: StepSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The position is taken, and the arguments are encoded, when this coroutine first runs (design 1.6.3, 20)."""
        if self.loop.dead:
            return await self.loop.create_future()
        return await self.ask("step", spec.name, spec.rule.effect, codec.encode_call(args, kwargs), spec).future

    def ask(self, what: str, name: str, effect: str, args: bytes, spec: StepSpec | None) -> Ask:
        self.asked += 1
        ask = Ask(self, self.asked, what, name, effect, args, spec, asyncio.current_task(self.loop))
        self.open[ask.position] = ask
        self._emit(ask)
        return ask

    def abandon(self, ask: Ask) -> None:
        """A read nobody waits for any more: its outcome will not be recorded."""
        if self.open.pop(ask.position, None) is not None and not self.loop.dead:
            self.stops.append(ask)

    def want_stop(self, ask: Ask, *, by_timeout: bool) -> None:
        ask.stop_by_timeout = ask.stop_by_timeout and by_timeout
        if not ask.stop_wanted:
            ask.stop_wanted = True
            self.stops.append(ask)
        ask.stop_level = ask.task.cancelling() if ask.task is not None else 0

    def patched(self, name: str) -> bool:
        """True in runs that reach this place for the first time with this code, False where the journal knows the old way."""
        self.alive()
        known = self._patches.get(name)
        if known is not None:
            return known
        asked = sum(isinstance(item, Ask) for item in self._emitted)
        known = recorded(name, self._journal, self._cursor + 1, asked) if self.replaying else None
        if known is None:
            self._emit(Patched(self.loop.now, name))
        taken = self._patches[name] = known is not False
        return taken

    def main_coro(self) -> Any:
        return self._main.get_coro() if self._main is not None else None

    @property
    def random(self) -> random.Random:
        self.alive()
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random

    @property
    def uuids(self) -> random.Random:
        self.alive()
        if self._uuids is None:
            self._uuids = random.Random(f"{self._seed}:uuid")
        return self._uuids


async def _call(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    return await fn(*args, **kwargs)
