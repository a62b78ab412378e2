"""asyncio 3.11 is not deterministic by itself: two places iterate sets of objects that hash by address.

- `gather` returns a future of a class of its own; put into a set it hashes by its address. It gets a number instead.
- `as_completed` starts coroutines in the order of `set(coroutines)`. On a run's loop that set keeps the order of its input.

Both are behaviour-neutral on every other loop. Replacing `asyncio.as_completed` itself would not reach code that imported it by name.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
from asyncio import _get_running_loop as get_running_loop
from collections.abc import Iterable
from typing import Any

_installed = False


def install() -> None:
    global _installed  # noqa: PLW0603  # once per process
    if _installed:
        return
    _installed = True
    gathering: Any = asyncio.tasks._GatheringFuture  # type: ignore[attr-defined]  # its class has no public name
    gathering.__hash__ = _hash_by_number
    asyncio.tasks.set = _set_in_order  # type: ignore[attr-defined]  # shadows the builtin in that one module


def _hash_by_number(future: Any) -> int:
    number: int | None = future.__dict__.get("_perdure_number")
    if number is None:
        take = getattr(future._loop, "take_number", None)
        number = future.__dict__["_perdure_number"] = take() if take else object.__hash__(future)
    return number


def _set_in_order(items: Iterable[Any] = ()) -> Any:
    if not hasattr(get_running_loop(), "take_number"):
        return set(items)
    ordered = dict.fromkeys(items)
    return ordered if any(asyncio.iscoroutine(item) for item in ordered) else set(ordered)
