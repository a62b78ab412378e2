"""The guard: agent code that reads hidden state is refused, with the line and the remedy (A6).

Owns: the mark "this thread runs agent code", the hooks that refuse what is read there, the scan of an agent.
Does not own: the recorded sources (`run.now()`, `run.random`, `run.uuid()`), divergence, what the loop refuses.
Read first: marks, then bans (what is refused, what is not seen), hooks, scan.
"""
