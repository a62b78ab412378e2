"""What people ask of a run, honoured before any new effect (C1)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from perdure.base import codec, limits
from perdure.base.records import AnyRecord, Cancelled, Ended, ErrorData, Executed, Noted, Resolved
from perdure.base.status import ControlKind, Reason, Status
from perdure.kernel.activation import Activation
from perdure.store.contract import ControlRow, RunChange
from perdure.worker.effects import Effects
from perdure.worker.outbox import Outbox

log = logging.getLogger("perdure.worker")

_LEAVES_PAUSED: Final = frozenset({ControlKind.RESOLVE, ControlKind.INTERRUPT})


class Steered(Protocol):
    """What steering needs of the run."""

    id: str
    activation: Activation
    effects: Effects
    outbox: Outbox
    stand: RunChange | None
    now: Callable[[], float]
    deliver: Callable[[AnyRecord], None]


class Steering:
    def __init__(self, digest: str) -> None:
        self._digest = digest
        self.last = 0  # the newest request that came here
        self.on_release = 0  # consumed when the run is released: until then it would have to be honoured again

    def take(self, run: Steered, row: ControlRow) -> None:
        if row.id <= self.last:
            return  # Handed out with the claim already.
        self.last = row.id
        body: Any = codec.decode(row.body)
        if row.kind is ControlKind.PAUSE:
            run.stand = RunChange(Status.PAUSED, release=True, code=self._digest)
            self.on_release = row.id
            return
        if run.stand is not None and run.stand.status is Status.PAUSED and row.kind in _LEAVES_PAUSED:
            self.on_release = row.id  # consumed with the pause, which would be lost if this process died before
        else:
            run.outbox.see(row.id)
        match row.kind:
            case ControlKind.RESUME:
                run.stand = None
                if note := body.get("note"):
                    run.deliver(Noted(run.now(), str(note)[: limits.note_chars_max], row.by))
            case ControlKind.CANCEL:
                run.stand = None
                run.deliver(Cancelled(run.now(), row.by))
            case ControlKind.TERMINATE:
                self._terminate(run)
            case ControlKind.RESOLVE:
                self._resolve(run, row, body)
            case ControlKind.INTERRUPT:
                run.effects.interrupt()
            case ControlKind.RETRY:
                pass  # Replay has acted on it already.

    def _resolve(self, run: Steered, row: ControlRow, body: dict[str, Any]) -> None:
        position: int = body["position"]
        ask = run.activation.open.get(position)
        if ask is None or run.effects.has(ask):
            log.warning("run %s: step %s is not in doubt any more; the answer was not used", run.id, position)
            return
        now, verdict, result = run.now(), body["verdict"], body.get("result")
        run.deliver(Resolved(now, position, verdict, result, row.by))
        if run.stand is not None and run.stand.reason == Reason.IN_DOUBT:
            run.stand = None
        match verdict:
            case "done":
                run.deliver(Executed(now, position, ask.attempt, result))
            case "fail":
                message = body.get("message") or "a person said that this step failed"
                error = ErrorData("ResolvedAsFailed", message, step=ask.name, position=position)
                run.deliver(Executed(now, position, ask.attempt, error=error))
            case _ if ask.stop_wanted:  # it did not happen, and nobody waits for it any more
                run.deliver(Executed(now, position, ask.attempt, cancelled=True))
            case _:
                ask.seq = run.activation.seq
                run.effects.waiting.append(ask)

    def _terminate(self, run: Steered) -> None:
        run.effects.kill_all()
        run.stand = None
        error = ErrorData("Terminated", "killed by a person; its cleanup did not run")
        run.deliver(Ended(run.now(), Status.CANCELLED, error=error))
