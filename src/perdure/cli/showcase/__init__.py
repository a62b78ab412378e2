"""What `perdure demo` shows: an agent that is killed and goes on, and a ledger that counts what reached the world.

Owns: the demo's agent, its worker and ledger processes, the scenes, the screen.
Does not own: anything of the runtime: it uses what users use.
Read first: agent.py, then scenes.py.
"""
