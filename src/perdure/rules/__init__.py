"""Pure policies: values in, a decision out.

Owns: the effect rule, classification of failures, backoff and its jitter.
Does not own: the clock, randomness or any I/O: the caller passes them in as values.
Read first: effect.py.
"""
