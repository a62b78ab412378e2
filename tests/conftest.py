"""What every test shares: hypothesis is repeatable and has no clock of its own."""

from __future__ import annotations

from hypothesis import settings

# No deadline: the machine is shared and noisy. Derandomized: the same commit gives the same answer.
settings.register_profile("perdure", deadline=None, derandomize=True, database=None)
settings.load_profile("perdure")
