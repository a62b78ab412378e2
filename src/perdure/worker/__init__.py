"""The only place where kernel and store meet.

Owns: claiming, executing steps, the one writer, timers, leases, recovery, shutdown; one duty per loop.
Does not own: what agent code asks for (kernel/), what is durable (store/), what to do after a failure (rules/).
Read first: the worker, then the writer.
"""
