"""asyncio 3.11 is not deterministic by itself: three places iterate sets of objects that hash by address.

- `gather` returns a future of a class of its own; put into a set it hashes by its address. It gets a number instead.
- `as_completed` starts what it is given in the order of `set(awaitables)`. On a run's loop that set keeps the order of its input.
- `all_tasks` copies a set that holds the tasks of all runs of the process. On a run's loop it sees that run's tasks, in creation order.

They are behaviour-neutral on every other loop. Replacing `asyncio.as_completed` itself would not reach code that imported it by name.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
from asyncio import _get_running_loop as get_running_loop
from collections.abc import Iterable, Iterator
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
    asyncio.tasks._all_tasks = _TasksInOrder(asyncio.tasks._all_tasks)  # type: ignore[attr-defined]  # read by `all_tasks` only


class _TasksInOrder:
    def __init__(self, everything: Iterable[Any]) -> None:
        self._everything = everything

    def __iter__(self) -> Iterator[Any]:
        live: Any = getattr(get_running_loop(), "live_tasks", None)
        return iter(live() if live is not None else self._everything)


def _hash_by_number(future: Any) -> int:
    known: int | None = future.__dict__.get("_perdure_number")
    if known is not None:
        return known
    take = getattr(future._loop, "take_number", None)
    number: int = take() if take else object.__hash__(future)
    future.__dict__["_perdure_number"] = number
    return number


def _set_in_order(items: Iterable[Any] = ()) -> Any:
    if not hasattr(get_running_loop(), "take_number"):
        return set(items)
    ordered = dict.fromkeys(items)
    return set(ordered) if all(map(asyncio.isfuture, ordered)) else ordered
