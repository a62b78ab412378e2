"""The kit for testing what is built on perdure; used by its own tests.

Owns: the store conformance suite, the ledger, crash and clock tools.
Does not own: the tests themselves (tests/ beside src/).
Read first: ledger and crash for programs, conformance for stores.
"""
