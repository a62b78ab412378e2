"""The steps of one run: from the durable decision to the recorded outcome.

J2. No effect of rule other than `read` starts before its W1, and all that led to it, is durable.
J4. The key of a step that is not a read is a function of run and position alone.
L2. No effect starts unless the lease is valid by a margin.
C1. Control that is durable is honoured before any new effect: the write that marks a start is refused over newer control.

A step passes through: `waiting` (decided, not yet durable) → for rules that mark their start, and for every repetition, `marked` (W1' not yet durable) →
`running` → its outcome, or `backoff` and again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, assert_never

from perdure.base import codec, faults, limits
from perdure.base.records import Doubted, ErrorData, Executed, Started, Tried
from perdure.errors import InDoubt, NotStorable, PayloadTooLarge
from perdure.kernel.ask import Ask
from perdure.kernel.failure import error_data
from perdure.rules import backoff
from perdure.rules.classify import Kind, classify
from perdure.rules.effect import Doubt, Fail, Probe, Redo, Retry, StepRule, after_failure, on_recovery
from perdure.worker.attempt import Attempt
from perdure.worker.host import Host
from perdure.worker.step_context import Keys

_DECIDED = faults.point("step.decided", "a step was asked for, nothing of that is written")
_DURABLE = faults.point("step.durable", "its decision is durable, nothing has begun")
_STARTED = faults.point("step.started", "its start is durable, nothing has begun")
_SETTLED = faults.point("step.settled", "its outcome is known in memory, nothing of that is written")

PARTIAL = "partial"
"""What a probe answers when the effect happened in part: a person decides."""


class Effects:
    def __init__(self, run: Host) -> None:
        self.run_id = run.id
        self._run = run
        self._keys = Keys(run.id)
        self.services = run.services
        self.waiting: deque[Ask] = deque()
        self.marked: deque[tuple[int, Ask]] = deque()
        self.running: dict[int, Attempt] = {}
        self.backoffs: dict[int, Ask] = {}
        self._probe_failures: dict[int, int] = {}
        self._probes_due: set[int] = set()  # waiting until the probe is asked again
        self._interrupted: set[int] = set()  # a person has stopped them, and their probe is asked what they did
        self.details: dict[int, bytes | None] = {}

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting or self.marked or self._probes_due)

    def has(self, ask: Ask) -> bool:
        """Is it under way already? What control has started again must not be recovered as well, nor started twice."""
        return ask.position in self.running or ask.position in self._probes_due or self._is_queued(ask)

    def next_retry(self) -> float | None:
        return min((ask.tried.retry_at for ask in self.backoffs.values() if ask.tried), default=None)

    # Starting

    def add(self, ask: Ask) -> None:
        """A new decision. A read starts at once (J2); anything else when it is durable."""
        if faults.armed:
            faults.hit(_DECIDED, ask.name)
        if ask.is_read and self._run.free and not self._run.backlogged:
            self._execute(ask, 1)
        else:
            self.waiting.append(ask)

    def recover(self, ask: Ask) -> None:
        """A decision without an outcome, left by an earlier process: its rule decides."""
        rule = ask.rule
        if ask.stop_wanted:
            self._stopped_unknown(ask, rule) if ask.started else self._run.deliver(self._cancelled(ask))
        elif ask.tried is not None and not ask.started and ask.resolved is None:
            self._back_off(ask)
        else:
            match on_recovery(rule, ask.started):
                case Redo():
                    if not ask.attempt and not ask.marks_start:
                        ask.attempt = ask.unknown_count = 1  # a first attempt leaves no mark: it may have begun
                    self.waiting.append(ask)
                case Probe():
                    self._execute(ask, max(ask.attempt, 1), probing=True)
                case Doubt(policy):
                    self._doubt(
                        ask, policy, "the process died between the start of this step and the record of its outcome"
                    )
                case never:  # pyright: ignore[reportUnnecessaryComparison]  # exhaustive today, checked when a decision is added
                    assert_never(never)

    def start_durable(self) -> None:
        """After a commit: start what is durable now."""
        if not self.waiting and not self.marked:
            return
        run = self._run
        leased = self.services.lease.valid()  # L2
        waiting = self.waiting
        while waiting and run.free:
            ask = waiting[0]
            if ask.seq > run.outbox.committed_seq or not (leased or ask.is_read):
                break
            waiting.popleft()
            if ask.position in run.activation.open:
                if faults.armed:
                    faults.hit(_DURABLE, ask.name)
                self._begin(ask)
        while self.marked and run.free:
            seq, ask = self.marked[0]
            if seq > run.outbox.committed_seq or not leased:
                break
            self.marked.popleft()
            if ask.position in run.activation.open:
                if faults.armed:
                    faults.hit(_STARTED, ask.name)
                self._execute(ask, ask.attempt)

    def start_due(self, now: float) -> None:
        """Backoffs that are over."""
        for position, ask in list(self.backoffs.items()):
            if ask.tried is None or ask.tried.retry_at <= now:
                del self.backoffs[position]
                self.waiting.append(ask)
        self.start_durable()

    def _begin(self, ask: Ask) -> None:
        number = ask.attempt + 1
        if ask.is_read or (number == 1 and not ask.marks_start):
            self._execute(ask, number)
            return
        self._run.deliver(Started(self._run.now(), ask.position, number))
        self.marked.append((self._run.activation.seq, ask))
        self._run.guard_next_write()

    def _execute(self, ask: Ask, number: int, *, probing: bool = False) -> None:
        run, spec, position = self._run, ask.spec, ask.position
        assert spec is not None
        ask.attempt = number
        key = self._keys.read(position, run.epoch, number) if ask.is_read else self._keys.effect(position)  # J4
        details = self.details.get(position) if self.details else None
        attempt = Attempt(ask, spec, key, self, number=number, last_details=details, probing=probing)
        self.running[position] = attempt
        attempt.start()

    def heard(self, attempt: Attempt, details: bytes | None) -> None:
        if not attempt.over and not self._run.dead:
            attempt.is_alive()
            self.details[attempt.ask.position] = details
            self._run.pulse(attempt.ask.position, details)

    # Outcomes

    def settle(self, attempt: Attempt, value: Any, error: BaseException | None) -> None:
        run = self._run
        ask = attempt.ask
        if self.running.get(ask.position) is attempt:
            del self.running[ask.position]
        if run.dead:
            return
        if faults.armed:
            faults.hit(_SETTLED, ask.name)
        writer = self.services.writer
        writer.settling = True
        if attempt.last_details is not self.details.get(ask.position):
            # Its last heartbeat may still be on its way here.
            self.details[ask.position] = attempt.last_details
            run.pulse(ask.position, attempt.last_details)
        try:
            if ask.position in run.activation.open:  # else: an abandoned read
                if not ask.is_read:
                    run.outbox.urgent = True  # what follows should be durable at once
                if attempt.probing:
                    self._probed(attempt, value, error)
                elif error is None:
                    run.deliver(self._succeeded(ask, attempt.attempt, value))
                else:
                    self._failed(attempt, error)
            run.after()
        except Exception as exc:  # noqa: BLE001  # a fault of the runtime must not be lost in a task
            run.broken(exc)
        finally:
            writer.settled()

    def _succeeded(self, ask: Ask, number: int, value: Any) -> Executed:
        try:
            return Executed(self._run.now(), ask.position, number, codec.encode(value))
        except (NotStorable, PayloadTooLarge) as refused:
            # The effect has happened: the error is the step's, and it is never retried (design 1.6.8).
            return Executed(
                self._run.now(), ask.position, number, error=error_data(refused, step=ask.name, position=ask.position)
            )

    def _failed(self, attempt: Attempt, error: BaseException) -> None:
        ask, rule = attempt.ask, attempt.ask.rule
        assert ask.spec is not None
        cancelled = isinstance(error, asyncio.CancelledError)
        if attempt.stopping and cancelled:
            if attempt.has_begun:
                self._stopped_unknown(ask, rule)
            else:
                self._run.deliver(self._cancelled(ask) if ask.stop_wanted else self._error(ask, _interrupted(ask)))
            return
        kind = classify(error, ask.spec.raises)
        wait_s = backoff.retry_after_s(error, self._run.now())
        unknown = ask.unknown_count + (kind is Kind.UNKNOWN)
        decision = after_failure(rule, attempt.attempt, kind, unknown, wait_s, self.services.world.random())
        data = error_data(error, step=ask.name, position=ask.position)
        match decision:
            case Retry() if ask.stop_wanted:
                self._run.deliver(self._cancelled(ask) if kind is Kind.UNKNOWN else self._error(ask, data))
            case Retry() if attempt.stopping:
                self._run.deliver(self._error(ask, data))
            case Retry(wait):
                now = self._run.now()
                self._run.deliver(Tried(now, ask.position, attempt.attempt, data, now + wait, kind is Kind.UNKNOWN))
                ask.seq = self._run.activation.seq
                self._back_off(ask)
            case Fail():
                self._run.deliver(self._error(ask, data))
            case Probe():
                self._execute(ask, attempt.attempt, probing=True)
            case Doubt(policy):
                self._doubt(ask, policy, f"{data.type}: {data.message}" if data.message else data.type)
            case never:  # pyright: ignore[reportUnnecessaryComparison]  # as above
                assert_never(never)

    def _probed(self, attempt: Attempt, value: Any, error: BaseException | None) -> None:
        """The probe has answered: no (None or False), in part, or yes, with the result."""
        ask = attempt.ask
        if isinstance(error, InDoubt) or (error is None and value == PARTIAL):
            self._doubt(
                ask, "in_doubt", "the probe says that the effect happened in part" if error is None else str(error)
            )
        elif error is not None:
            failures = self._probe_failures[ask.position] = self._probe_failures.get(ask.position, 0) + 1
            if failures >= limits.probe_attempts_max or attempt.stopping:
                self._doubt(ask, "in_doubt", f"the probe failed {failures} times: {error_data(error).message}")
            else:
                self._execute_later(
                    ask, attempt.attempt, ask.rule.backoff.wait_s(failures, self.services.world.random())
                )
        elif value is None or value is False:
            self._did_not_happen(ask)
        else:
            self._run.deliver(self._succeeded(ask, attempt.attempt, value))

    def _did_not_happen(self, ask: Ask) -> None:
        if ask.stop_wanted:
            self._run.deliver(self._cancelled(ask))
            return
        if ask.position in self._interrupted:
            self._run.deliver(self._error(ask, _interrupted(ask)))
            return
        data = ErrorData(
            "NotDone", "the probe says that the effect did not happen", step=ask.name, position=ask.position
        )
        now = self._run.now()
        if ask.unknown_count >= limits.unknown_outcomes_max + ask.rule.retries:
            self._run.deliver(self._error(ask, data))
            return
        wait_s = ask.rule.backoff.wait_s(ask.unknown_count, self.services.world.random()) if ask.unknown_count else 0.0
        self._run.deliver(Tried(now, ask.position, ask.attempt, data, now + wait_s, unknown=True))
        ask.seq = self._run.activation.seq
        self._back_off(ask)

    def _execute_later(self, ask: Ask, number: int, wait_s: float) -> None:
        self._probes_due.add(ask.position)

        def again() -> None:
            if ask.position not in self._probes_due:
                return  # It was killed.
            self._probes_due.discard(ask.position)
            if ask.position not in self._run.activation.open:
                return
            if self._run.free:
                self._execute(ask, number, probing=True)
            else:
                self._run.recover_later(ask)

        asyncio.get_running_loop().call_later(wait_s, again)

    def _back_off(self, ask: Ask) -> None:
        self.backoffs[ask.position] = ask

    def _doubt(self, ask: Ask, policy: str, why: str) -> None:
        run = self._run
        match policy:
            case "assume_done":
                run.deliver(Executed(run.now(), ask.position, ask.attempt, codec.encode(None)))
            case "assume_failed":
                run.deliver(self._error(ask, ErrorData("InDoubt", why, step=ask.name, position=ask.position)))
            case _:
                if not ask.doubted:
                    run.deliver(Doubted(run.now(), ask.position, ask.attempt, why))
                run.park_in_doubt(ask, ask.doubted or why)  # the first reason is the one on record

    # Stopping

    def stop(self, ask: Ask) -> None:
        """Nobody waits for it any more (a read), or its awaiter was cancelled and is kept until the outcome is known (design 1.6.9)."""
        attempt = self.running.get(ask.position)
        if ask.is_read:
            if attempt is not None:
                del self.running[ask.position]
                attempt.kill()
            self._forget(ask)
        elif attempt is not None and not attempt.probing:
            attempt.stop()
        elif self._is_queued(ask) and ask.position in self._run.activation.open:
            self._forget(ask)
            self._run.deliver(self._cancelled(ask))
        # Else it may have happened: a probe or a person will tell.

    def _is_queued(self, ask: Ask) -> bool:
        return ask in self.waiting or ask.position in self.backoffs or any(entry[1] is ask for entry in self.marked)

    def _forget(self, ask: Ask) -> None:
        self.backoffs.pop(ask.position, None)
        if ask in self.waiting:
            self.waiting.remove(ask)
        self.marked = deque(entry for entry in self.marked if entry[1] is not ask)

    def _stopped_unknown(self, ask: Ask, rule: StepRule) -> None:
        match on_recovery(rule, started=True):
            case Redo():
                self._run.deliver(self._cancelled(ask))
            case Probe():
                self._execute(ask, ask.attempt, probing=True)
            case Doubt(policy):
                self._doubt(ask, policy, "it was cancelled while it ran")
            case never:  # pyright: ignore[reportUnnecessaryComparison]  # as above
                assert_never(never)

    def interrupt(self) -> None:
        """A person stops the steps that run now; the agent gets an error for each."""
        for attempt in list(self.running.values()):
            ask = attempt.ask
            if ask.marks_start:
                self._interrupted.add(ask.position)
                attempt.stop()
                continue
            del self.running[ask.position]
            attempt.kill()
            if ask.position in self._run.activation.open:  # else: a read that ended with the one before
                self._run.deliver(self._error(ask, _interrupted(ask)))

    def hold_back(self) -> None:
        """Marked starts that were not written because control came first: on record they did not start."""
        marked, self.marked = self.marked, deque()
        for _, ask in marked:
            now = self._run.now()
            data = ErrorData("HeldBack", "control came before the start", step=ask.name, position=ask.position)
            # Not an attempt: neither a retry nor a number is spent on it.
            self._run.deliver(Tried(now, ask.position, ask.attempt - 1, data, now))
            ask.seq = self._run.activation.seq
            self.waiting.appendleft(ask)

    def kill_all(self) -> None:
        for attempt in list(self.running.values()):
            attempt.kill()
        self.running.clear()
        self._probes_due.clear()

    def close(self) -> None:
        """The run leaves memory. Nothing comes here any more, so it lets go of it: no cycle is left for the collector."""
        self.kill_all()
        del self._run

    def _cancelled(self, ask: Ask) -> Executed:
        return Executed(self._run.now(), ask.position, ask.attempt, cancelled=True)

    def _error(self, ask: Ask, data: ErrorData) -> Executed:
        return Executed(self._run.now(), ask.position, ask.attempt, error=data)


def _interrupted(ask: Ask) -> ErrorData:
    return ErrorData("Interrupted", "a person cancelled this step", step=ask.name, position=ask.position)
