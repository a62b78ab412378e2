"""The deterministic loop: agent code runs here, live and on replay.

Owns: the loop, replay, positions, divergence, the guard against hidden state.
Does not own: I/O, the clock, the store, the execution of steps (worker/).
Read first: the loop, then replay.
"""
