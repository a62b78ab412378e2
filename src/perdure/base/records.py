"""The journal's records: everything that happened to a run, in order.

J1. A record once committed is never changed, only superseded or pruned behind a snapshot.
S1. Nothing on disk is trusted: an unknown kind or a wrong shape is `StoreDamaged`.

W1 is `Asked`, W1' is `Started`, W2 is `Executed`. `DELIVERED` names the kinds that enter the agent's loop; between two of them the
loop is quiet (J5).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from perdure.errors import StoreDamaged


class ErrorData(msgspec.Struct, frozen=True, array_like=True):
    """An error as it is stored: it is raised the same way live and on replay."""

    type: str
    message: str
    traceback: str = ""
    data: bytes | None = None  # the codec's bytes of `exc.data`
    args: bytes | None = None  # the codec's bytes of `exc.args`, for the classes named in `raises=`
    step: str = ""
    position: int = 0


class Record(msgspec.Struct, frozen=True, array_like=True):
    at: float


class Begun(Record, frozen=True, tag=1):
    """The first record: where and with what the run first executed."""

    python: str
    code: str
    seed: int


class Asked(Record, frozen=True, tag=2):
    """W1: the agent decided on an effect, with these arguments."""

    position: int
    what: str  # "step"; other kinds of asking share the mechanism
    name: str
    effect: str
    args: bytes
    probe: bool = False


class Started(Record, frozen=True, tag=3):
    """W1': the effect of a `once` or `probe` step may happen from here on."""

    position: int
    attempt: int


class Tried(Record, frozen=True, tag=4):
    """An attempt failed and another one follows at `retry_at`."""

    position: int
    attempt: int
    error: ErrorData
    retry_at: float
    unknown: bool = False


class Executed(Record, frozen=True, tag=5):
    """W2: the step's outcome, for good."""

    position: int
    attempt: int
    result: bytes | None = None
    error: ErrorData | None = None
    cancelled: bool = False


class Doubted(Record, frozen=True, tag=6):
    """The effect may or may not have happened: a person or a policy decides."""

    position: int
    attempt: int
    why: str


class Fired(Record, frozen=True, tag=7):
    """A timer of the agent's loop fell due."""

    timer: int


class Rested(Record, frozen=True, tag=8):
    """The run went idle here, having asked for `asked` steps and made `timers` timers, until `wake_at`."""

    asked: int
    timers: int
    wake_at: float | None


class Patched(Record, frozen=True, tag=9):
    """The code took the new branch of `run.patched(name)`."""

    name: str


class Noted(Record, frozen=True, tag=10):
    """A person's note, given with `resume`."""

    text: str
    by: str = ""


class Cancelled(Record, frozen=True, tag=11):
    """Cancellation was asked for and entered the agent's loop."""

    by: str = ""


class Resolved(Record, frozen=True, tag=12):
    """A person decided about a step in doubt."""

    position: int
    verdict: str  # "done", "retry" or "fail"
    result: bytes | None = None
    by: str = ""


class Retried(Record, frozen=True, tag=13):
    """The run goes on from its failed step.

    The records from number `dropped_from` up to this one no longer count. `reopened` steps failed and are tried again; `effects` lists dropped steps whose
    effect did happen. New steps are numbered above `positions`, so that no key is used twice.
    """

    position: int
    dropped_from: int
    reopened: list[int]
    effects: list[int]
    positions: int
    by: str = ""


class Ended(Record, frozen=True, tag=14):
    """The run's end."""

    status: str
    result: bytes | None = None
    error: ErrorData | None = None
    main_done_at: int = 0  # number of the record on which the agent's function returned or raised


AnyRecord: TypeAlias = (
    Begun
    | Asked
    | Started
    | Tried
    | Executed
    | Doubted
    | Fired
    | Rested
    | Patched
    | Noted
    | Cancelled
    | Resolved
    | Retried
    | Ended
)

DELIVERED = (Executed, Fired, Noted, Cancelled)

encode_record = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyRecord).decode


def decode_record(data: bytes) -> AnyRecord:
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise StoreDamaged(f"a journal record cannot be read ({exc}). Nothing was changed; restore a backup") from exc
