"""Which threads run agent code now.

G1. A mark belongs to one thread; code in other threads, steps included, is never affected.
G2. Marks nest: a thread is free again when it has left as often as it has entered.

The marks are one list of thread numbers: that it is empty is the cheapest test there is, so code elsewhere pays for
one load and one branch. Things that don't work: a context variable (steps inherit a copy of the agent's context), a
`threading.local` (twice the price when nobody runs agent code), a count without an owner (refuses steps in other
threads).
"""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Generator
from contextlib import contextmanager

marked: list[int] = []
"""One entry for each `enter` that was not left. Only this module changes it; the hooks read it."""

mark = marked.append
unmark = marked.remove
"""`enter` and `leave` for the hot path: the caller passes its own thread's number."""

# After a fork only the forking thread lives, and a new one may get the number of one that died.
os.register_at_fork(after_in_child=marked.clear)


def enter() -> None:
    """Agent code runs in this thread from here on."""
    mark(get_ident())


def leave() -> None:
    """Undo one `enter` of this thread."""
    unmark(get_ident())


@contextmanager
def paused() -> Generator[None]:
    """Inside, this thread is the runtime's own and may do what it likes."""
    me = get_ident()
    depth = marked.count(me)
    for _ in range(depth):
        unmark(me)
    try:
        yield
    finally:
        marked.extend([me] * depth)
