"""The guard: agent code that reads hidden state is refused, with the line and the remedy (A6).

Owns: the mark "this thread runs agent code", the hooks that refuse what is read there, the scan of an agent.
Does not own: the recorded sources (`run.now()`, `run.random`, `run.uuid()`), divergence, what the loop refuses.
Read first: marks, then bans (what is refused, what is not seen), hooks, scan.
"""

from __future__ import annotations

from perdure.kernel.guard.hooks import install
from perdure.kernel.guard.marks import enter, leave, paused
from perdure.kernel.guard.scan import check_agent

__all__ = ["check_agent", "enter", "install", "leave", "paused"]
