"""Divergence: the code asks for something else than the journal records. Said with line, last common step and a short diff; nothing is executed."""

from __future__ import annotations

from typing import Any, Protocol

from perdure.base import codec
from perdure.base.records import AnyRecord, Asked, Fired, Patched, Rested
from perdure.errors import Diverged, PerdureError
from perdure.kernel.ask import Ask
from perdure.kernel.loop import RunLoop
from perdure.kernel.source import waiting_line
from perdure.kernel.spec import AgentSpec


class Replayed(Protocol):
    """What is said of the activation that diverged."""

    run_id: str
    agent: AgentSpec
    loop: RunLoop
    asked: int
    last_step: tuple[int, str] | None

    def main_coro(self) -> Any: ...


_VALUE_CHARS_MAX = 120


def changed(run: Replayed, ask: Ask | Patched, record: Asked) -> Diverged:
    return _diverged(run, _recorded(record), _asked(ask), _line_of(run, ask))


def added(run: Replayed, ask: Ask | Patched, record: AnyRecord) -> Diverged:
    return _diverged(
        run,
        {"name": None, "what": f"nothing more before its {type(record).__name__} record"},
        _asked(ask),
        _line_of(run, ask),
    )


def removed(run: Replayed, record: Asked) -> Diverged:
    return _diverged(run, _recorded(record), {"name": None, "what": "nothing here"}, _main_line(run))


def not_open(run: Replayed, position: int, record: AnyRecord) -> Diverged:
    return _diverged(
        run,
        {"name": None, "what": f"{type(record).__name__} of step {position}"},
        {"name": None, "what": f"nobody waits for step {position}"},
        _main_line(run),
    )


def no_timer(run: Replayed, record: Fired) -> Diverged:
    timer = run.loop.live_timer(record.timer)
    asked = f"timer {timer.number}, due {timer.due - record.at:g} s later" if timer else "no such timer"
    return _diverged(
        run,
        {"name": "timer", "what": f"timer {record.timer} fired"},
        {"name": None, "what": asked},
        _main_line(run),
    )


def rested(run: Replayed, record: Rested) -> Diverged:
    return _diverged(
        run,
        {"name": None, "what": f"it waited here, after {record.asked} steps and {record.timers} timers"},
        {"name": None, "what": f"it waits after {run.asked} steps and {run.loop.timers_made} timers"},
        _main_line(run),
    )


def _diverged(run: Replayed, recorded: dict[str, Any], asked: dict[str, Any], line: tuple[str, int]) -> Diverged:
    file, number = line
    last = run.last_step
    common = f"step {last[0]} {last[1]}" if last else "the start"
    rows = _diff(recorded, asked)
    message = "\n".join(
        [
            f"the code at {file}:{number} does not do what run {run.run_id} has recorded; nothing was executed",
            f"  last common step: {common}",
            *(f"  {row}" for row in rows),
            '  Put the old code back, or keep both ways with `if run.patched("name"):`; the run then goes on by itself, or by `perdure resume`.',
        ]
    )
    data = {
        "recorded": recorded,
        "asked": asked,
        "file": file,
        "line": number,
        "last_common": {"position": last[0], "name": last[1]} if last else None,
        "diff": rows,
    }
    return Diverged(message, data=data)


def _diff(recorded: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    return [f"recorded: {_said(recorded)}", f"asked:    {_said(asked)}"]


def _said(side: dict[str, Any]) -> str:
    if side["name"] is None or "args" not in side:
        return str(side["what"])
    return f"step {side['position']} {side['name']}({side['args']})"


def _recorded(record: Asked) -> dict[str, Any]:
    return {"position": record.position, "name": record.name, "args": _show_args(record.args), "what": record.what}


def _asked(ask: Ask | Patched) -> dict[str, Any]:
    if isinstance(ask, Patched):
        return {"name": None, "what": f"run.patched({ask.name!r})"}
    return {"position": ask.position, "name": ask.name, "args": _show_args(ask.args), "what": ask.what}


def _show_args(data: bytes) -> str:
    try:
        value: Any = codec.decode(data)
        args, kwargs = value
        shown = ", ".join([*(repr(arg) for arg in args), *(f"{key}={arg!r}" for key, arg in kwargs.items())])
    except (PerdureError, TypeError, ValueError, AttributeError):
        shown = f"{len(data)} bytes"
    return shown if len(shown) <= _VALUE_CHARS_MAX else shown[: _VALUE_CHARS_MAX - 1] + "…"


def _line_of(run: Replayed, ask: Ask | Patched) -> tuple[str, int]:
    if isinstance(ask, Ask) and ask.task is not None:
        return waiting_line(ask.task.get_coro())
    return _main_line(run)


def _main_line(run: Replayed) -> tuple[str, int]:
    file, line = waiting_line(run.main_coro())
    if line:
        return file, line
    code = run.agent.fn.__code__
    return code.co_filename, code.co_firstlineno
