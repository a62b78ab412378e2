"""Parse, call, print.

Owns: the commands, their output and exit codes; data on stdout, progress on stderr.
Does not own: anything a program could want: that is in api/.
Read first: main.py.
"""
