"""What is true.

Owns: the contract, one verb per atomic transaction, each with its promise; a folder per database.
Does not own: when to write (worker/), what a record means (kernel/, rules/).
Read first: contract.py.
"""
