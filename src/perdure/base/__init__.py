"""Words that everything else is written in.

Owns: ids, records, statuses, the codec, limits, fault points, and the world (time, randomness, ids, I/O).
Does not own: decisions (rules/), replay (kernel/), SQL (store/).
Read first: records.py, limits.py, world.py.
"""
