"""How coroutines leave memory: closed, with their cleanup code unable to do anything and unable to be heard (design 1.6.7).

Things that don't work: dropping them (the garbage collector then runs their `finally` blocks at a time of its own, in another run's pump);
clearing their frames (that closes them too); `coroutine.close()` (it stops short of an async generator that waits for something: that one counts
as running from then on, and can neither be closed nor go on).
"""

from __future__ import annotations

import sys
import warnings
from asyncio import _enter_task as enter_task
from asyncio import _leave_task as leave_task
from collections.abc import AsyncGenerator, Sequence
from contextvars import Context
from typing import Any, Protocol

from perdure.errors import Suspend

_TRIES = 8


class Closable(Protocol):
    @property
    def context(self) -> Context: ...
    def done(self) -> bool: ...
    def get_coro(self) -> Any: ...


_unclosable: list[object] = []
"""Coroutines that refuse to be closed; kept, so that the collector does not run them."""


def close_all(tasks: Sequence[Closable], generators: Sequence[AsyncGenerator[Any, Any]]) -> None:
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=ignore_generator)
    unraisable, sys.unraisablehook = sys.unraisablehook, _ignore_unraisable
    unawaited, _warnings._warn_unawaited_coroutine = _warnings._warn_unawaited_coroutine, _ignore_unawaited
    try:
        for task in tasks:
            _close_task(task)
        for generator in generators:
            _close_generator(generator)
    finally:
        _warnings._warn_unawaited_coroutine = unawaited
        sys.unraisablehook = unraisable
        sys.set_asyncgen_hooks(*hooks)


def _close_task(task: Any) -> None:
    if task.done():
        return
    task._log_destroy_pending = False
    coro: Any = task.get_coro()
    loop = task.get_loop()
    for _ in range(_TRIES):
        enter_task(loop, task)  # `TaskGroup` and `timeout` refuse to work outside a task
        try:
            task.context.run(coro.throw, Suspend.make())
        except BaseException:  # noqa: BLE001, S110  # whatever a dying coroutine raises concerns nobody
            pass
        finally:
            leave_task(loop, task)
        if _frame(coro) is None:
            _let_go(task)
            return
    _unclosable.append(coro)


def _frame(coro: Any) -> Any:
    """What it still runs in. A task made of any awaitable drives a plain generator; a class of the user's may have no frame to show."""
    return getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)


def _let_go(task: Any) -> None:
    """It waits for nothing any more, and what it waited for does not lead back to it: no cycle is left for the collector."""
    waited_for = task._fut_waiter
    for callback, _ in getattr(waited_for, "_callbacks", None) or ():
        waited_for.remove_done_callback(callback)


def _close_generator(generator: Any) -> None:
    for _ in range(_TRIES):
        if generator.ag_frame is None:
            return
        closing = generator.aclose()
        try:
            closing.send(None)
        except BaseException:  # noqa: BLE001, S110  # as above; StopIteration is the good case
            pass
        finally:
            closing.close()
    _unclosable.append(generator)


def ignore_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """The collector met a generator: its cleanup is the run's business, not the collector's."""
    del generator


def _ignore_unraisable(unraisable: object) -> None:
    del unraisable


def _ignore_unawaited(coroutine: object) -> None:
    del coroutine


def _warn_unawaited(coroutine: Any) -> None:
    """What lay in a cycle is collected later: a step that a dropped run did not come to is nobody's mistake."""
    frame = coroutine.cr_frame
    names: dict[str, Any] = frame.f_locals if frame is not None else {}
    loop = getattr(names.get("self"), "loop", None)
    step = getattr(names.get("spec"), "name", None)
    if loop is None or step is None:
        _warn(coroutine)
    elif not loop.dead:
        # Usually still on the line that let go of it, so that is the line the warning names.
        warnings.warn(
            f"step {step} was never awaited, so it did not happen. Write `await {step}(…)`",
            RuntimeWarning,
            stacklevel=2,
        )


_warnings: Any = warnings
_warn: Any = _warnings._warn_unawaited_coroutine
_warnings._warn_unawaited_coroutine = _warn_unawaited
