"""Play an agent in memory, then again from every place where it could have been killed. Pure: no store, no clock.

J3. A recorded result is returned, never recomputed: a replay calls no step.
J5. What the agent does is a function of what was delivered, in which order: a run that is cut anywhere goes on to the
very same journal.

A `Script` is the world around the run: what steps give, and in which order results, timers and a cancellation arrive.
What arrives next is a function of the journal alone, so a run that goes on from a prefix of its journal must write the
rest of it again, byte by byte.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.base import codec
from perdure.base.records import AnyRecord, Asked, Cancelled, Ended, Executed, Fired, Started, decode_record
from perdure.kernel.activation import Activation
from perdure.kernel.ask import Ask
from perdure.kernel.failure import error_data
from perdure.kernel.spec import AgentSpec, input_of

_SEED = 20_26
_RECORDS_MAX = 10_000
# Not 1 for `first`: an agent may poll until a result is there.
_TIMER_SHARE = {"last": 0.0, "mixed": 0.5, "first": 0.9}


@dataclass(frozen=True, slots=True)
class Script:
    """The world around a run.

    `steps`: what a step's name gives, instead of calling the step's own function (whose coroutine may not wait).
    `order`: the next result is that of the step asked first, last, of a random one, or (`timed`) of the one whose
    `seconds` are over first; `timed` also decides between results and timers. `timers`: elsewhere, timers fire when no
    result is there (`last`), mostly before any (`first`), or either way at random (`mixed`).
    `stopped`: an effect that was asked to stop was `cancelled`, or it is `done` all the same if it has been started.
    `cancel_at`: the run is cancelled after that many records; `cancel_after_s`: after that many seconds (`timed`).
    """

    steps: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    order: Literal["fifo", "lifo", "random", "timed"] = "fifo"
    timers: Literal["last", "first", "mixed"] = "last"
    seconds: Callable[..., float] | None = None
    stopped: Literal["cancelled", "done"] = "cancelled"
    seed: int = 0
    cancel_at: int | None = None
    cancel_after_s: float | None = None
    start: float = 1_000.0


@dataclass(frozen=True, slots=True)
class Play:
    """A run that was played: its journal, its end (None: it waits for what never comes) and the steps it called."""

    journal: tuple[bytes, ...]
    ended: Ended | None
    calls: tuple[str, ...]

    @property
    def records(self) -> list[AnyRecord]:
        return [decode_record(data) for data in self.journal]

    @property
    def asked(self) -> list[tuple[int, str]]:
        return [(record.position, record.name) for record in self.records if isinstance(record, Asked)]

    @property
    def status(self) -> str:
        return self.ended.status if self.ended else "stuck"

    @property
    def result(self) -> Any:
        """The result; of a failed run the error's type and message."""
        if self.ended is None:
            return None
        if self.ended.error is not None:
            return f"{self.ended.error.type}: {self.ended.error.message}"
        return codec.decode(self.ended.result) if self.ended.result is not None else None


class ReplayMismatch(AssertionError):
    """A replay went another way than the run it replays."""


def play(
    agent: Any,
    *args: Any,
    script: Script | None = None,
    journal: Sequence[bytes] = (),
    run_id: str = "played",
    observe: Callable[[Activation], None] | None = None,
    **kwargs: Any,
) -> Play:
    """Run the agent to its end, from the start or from where the journal leaves it; `observe` sees it at its end."""
    spec = agent if isinstance(agent, AgentSpec) else agent.spec
    activation = Activation(run_id, spec, input_of(args, kwargs))
    player = _Player(activation, script or Script(), list(journal))
    try:
        player.run()
        if observe is not None:
            observe(activation)
        return Play(tuple(player.journal), activation.ended, tuple(player.calls))
    finally:
        activation.drop()


def replay_prefixes(
    agent: Any, *args: Any, whole: Play, script: Script | None = None, run_id: str = "played", **kwargs: Any
) -> None:
    """Kill the run at every position of its journal and let it go on; `ReplayMismatch` where it ends otherwise."""
    executed_by = list(_executed_counts(whole))
    for cut in range(len(whole.journal) + 1):
        again = play(agent, *args, script=script, journal=whole.journal[:cut], run_id=run_id, **kwargs)
        where = f"{_name(agent)}, killed after record {cut} of {len(whole.journal)}"
        if again.journal != whole.journal:
            raise ReplayMismatch(f"{where}: {_first_difference(whole, again)}")
        repeated = Counter(again.calls)
        expected = Counter(whole.calls) - executed_by[cut]
        if repeated != expected:
            raise ReplayMismatch(f"{where}: it called {dict(repeated)}, not {dict(expected)}")


def check(agent: Any, *args: Any, script: Script | None = None, run_id: str = "played", **kwargs: Any) -> Play:
    """Play it, then from every prefix of what it wrote."""
    whole = play(agent, *args, script=script, run_id=run_id, **kwargs)
    replay_prefixes(agent, *args, whole=whole, script=script, run_id=run_id, **kwargs)
    return whole


class _Player:
    def __init__(self, activation: Activation, script: Script, journal: list[bytes]) -> None:
        self.activation = activation
        self.script = script
        self.journal = journal
        self.calls: list[str] = []
        self._asked_at: dict[int, float] = {}
        self._cancelled = False

    def run(self) -> None:
        activation = self.activation
        if self.journal:
            records = [decode_record(data) for data in self.journal]
            for record in records:
                self._note(record)
            activation.feed(records)
        else:
            activation.begin(self.script.start, _SEED)
        self._collect()
        while activation.ended is None:
            record = self._next()
            if record is None:
                return
            activation.deliver(record)
            self._collect()
            if len(self.journal) > _RECORDS_MAX:
                raise ReplayMismatch(f"{activation.run_id} does not end: {_RECORDS_MAX} records")

    def _collect(self) -> None:
        for data in self.activation.take()[0]:
            self.journal.append(data)
            self._note(decode_record(data))

    def _note(self, record: AnyRecord) -> None:
        if isinstance(record, Asked):
            self._asked_at[record.position] = record.at
        self._cancelled = self._cancelled or isinstance(record, Cancelled)

    # What arrives next: a function of the journal

    def _next(self) -> AnyRecord | None:
        now, script = self.activation.loop.now, self.script
        if script.cancel_at is not None and not self._cancelled and len(self.journal) >= script.cancel_at:
            return Cancelled(now)
        asks = sorted(self.activation.open.values(), key=lambda ask: ask.position)
        for ask in asks:
            if not (ask.started or ask.stop_wanted or ask.is_read) and (
                script.stopped == "done" or ask.effect == "once" or ask.probe
            ):
                return Started(now, ask.position, 1)
        if script.order == "timed":
            return self._next_in_time(asks)
        timer = self.activation.loop.next_timer()
        fired = None if timer is None else Fired(max(now, timer.when()), timer.number)
        if not asks:
            return fired
        chance = random.Random(f"{script.seed}:{len(self.journal)}")
        if fired is not None and chance.random() < _TIMER_SHARE[script.timers]:
            return fired
        match script.order:
            case "fifo":
                ask = asks[0]
            case "lifo":
                ask = asks[-1]
            case _:
                ask = chance.choice(asks)
        return self._outcome(ask, now)

    def _next_in_time(self, asks: list[Ask]) -> AnyRecord | None:
        now, script = self.activation.loop.now, self.script
        due: list[tuple[float, int, Ask | Fired | Cancelled]] = [(self._due(ask), 0, ask) for ask in asks]
        timer = self.activation.loop.next_timer()
        if timer is not None:
            due.append((timer.when(), 1, Fired(max(now, timer.when()), timer.number)))
        if script.cancel_after_s is not None and not self._cancelled:
            at = script.start + script.cancel_after_s
            due.append((at, 2, Cancelled(max(now, at))))
        if not due:
            return None
        at, _, what = min(due, key=lambda item: item[:2])
        return self._outcome(what, max(now, at)) if isinstance(what, Ask) else what

    def _due(self, ask: Ask) -> float:
        if self._is_stopped(ask):
            return self.activation.loop.now
        args, kwargs = _arguments(ask)
        seconds = self.script.seconds
        return self._asked_at[ask.position] + (seconds(*args, **kwargs) if seconds is not None else 0.0)

    def _outcome(self, ask: Ask, at: float) -> AnyRecord:
        if self._is_stopped(ask):
            return Executed(at, ask.position, 1, cancelled=True)
        args, kwargs = _arguments(ask)
        self.calls.append(ask.name)
        try:
            value = self._value(ask, args, kwargs)
        except Exception as exc:  # noqa: BLE001  # the step's outcome, whatever it is
            return Executed(at, ask.position, 1, error=error_data(exc, step=ask.name, position=ask.position))
        return Executed(at, ask.position, 1, codec.encode(value))

    def _is_stopped(self, ask: Ask) -> bool:
        return ask.stop_wanted and (self.script.stopped == "cancelled" or not ask.started)

    def _value(self, ask: Ask, args: list[Any], kwargs: dict[str, Any]) -> Any:
        scripted = self.script.steps.get(ask.name)
        if scripted is not None:
            return scripted(*args, **kwargs)
        assert ask.spec is not None
        value = ask.spec.fn(*args, **kwargs)
        return _at_once(value) if hasattr(value, "send") else value


def _at_once(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError("a played step may not wait: script it, `Script(steps={name: function})`")


def _arguments(ask: Ask) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = codec.decode(ask.args)  # type: ignore[misc]  # written by `Activation.step`
    return args, kwargs


def _executed_counts(whole: Play) -> list[Counter[str]]:
    """For each length of a prefix: the calls whose outcome it holds."""
    names: dict[int, str] = {}
    counts: list[Counter[str]] = [Counter()]
    for record in whole.records:
        counts.append(counts[-1].copy())
        if isinstance(record, Asked):
            names[record.position] = record.name
        elif isinstance(record, Executed) and not record.cancelled:
            counts[-1][names[record.position]] += 1
    return counts


def _first_difference(whole: Play, again: Play) -> str:
    for number, (old, new) in enumerate(zip(whole.journal, again.journal, strict=False), 1):
        if old != new:
            return f"record {number} was {decode_record(old)} and is now {decode_record(new)}"
    longer = again if len(again.journal) > len(whole.journal) else whole
    extra = decode_record(longer.journal[min(len(whole.journal), len(again.journal))])
    return f"it ends {'later, with' if longer is again else 'before'} {extra}"


def _name(agent: Any) -> str:
    return (agent if isinstance(agent, AgentSpec) else agent.spec).name
