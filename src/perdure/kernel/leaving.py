"""How coroutines leave memory: closed, with their cleanup code unable to do anything and unable to be heard (design 1.6.7).

Things that don't work: dropping them (the garbage collector then runs their `finally` blocks at a time of its own, in another run's pump);
clearing their frames (that closes them too).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextvars import Context
from typing import Any, Protocol

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
    try:
        for task in tasks:
            _close_task(task)
        for generator in generators:
            _close_generator(generator)
    finally:
        sys.unraisablehook = unraisable
        sys.set_asyncgen_hooks(*hooks)


def _close_task(task: Any) -> None:
    if task.done():
        return
    task._log_destroy_pending = False
    coro: Any = task.get_coro()
    for _ in range(_TRIES):
        try:
            task.context.run(coro.close)
        except BaseException:  # noqa: BLE001, S110  # whatever a dying coroutine raises concerns nobody
            pass
        if coro.cr_frame is None:
            return
    _unclosable.append(coro)


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
