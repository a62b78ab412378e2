"""What a store must do, as code.

Owns: one promise for each sentence of store/contract.py, runnable against any store.
Does not own: what only one database has (tests/unit/store).
Read first: suite.py, kit.py.
"""
