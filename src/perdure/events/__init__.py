"""What happened, told to whoever listens.

Owns: the typed events and the way to their subscribers; a broken subscriber never breaks a run.
Does not own: the journal (store/), which is the truth; an event is only a hint.
Read first: the event types.
"""
