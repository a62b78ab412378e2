"""Async generators: Python tells a hook of the thread when one is first iterated, and when the collector meets one.

The hooks of a run must see those of its agent, and the process's own loop those of everybody else (design 1.6.7). Swapping hooks around each
pump costs more than the pump, so one pair looks at the running loop and passes on what is not a run's.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from asyncio import _get_running_loop as get_running_loop
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

_before: dict[int, Any] = {}
"""The hooks that were there before ours, by thread."""


def watch_generators() -> None:
    """Put our hooks in front of this thread's."""
    _before[get_ident()] = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=first_iteration, finalizer=_met_by_collector)


def first_iteration(generator: AsyncGenerator[Any, Any]) -> None:
    keep = getattr(get_running_loop(), "keep_generator", None)
    if keep is not None:
        keep(generator)
        return
    before = _before.get(get_ident())
    if before is not None and before.firstiter is not None:
        before.firstiter(generator)


def _met_by_collector(generator: AsyncGenerator[Any, Any]) -> None:
    before = _before.get(get_ident())
    if before is not None and before.finalizer is not None and not hasattr(get_running_loop(), "keep_generator"):
        before.finalizer(generator)


async def close_in_order(generators: list[Any]) -> None:
    """At a run's end: as asyncio does at its own, one generator's error does not stop the others."""
    for generator in generators:
        with suppress(Exception):
            await generator.aclose()
