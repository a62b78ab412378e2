"""What users import.

Owns: agent, step, run, Perdure, Handle and their options; decorators only register.
Does not own: execution (worker/), printing (cli/).
Read first: the app.
"""
