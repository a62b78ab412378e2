"""SQLite.

Owns: the SQLite store; every line that knows apsw or SQLite.
Does not own: what a store promises (store/contract.py).
Read first: store.py, then engine.py.
"""
