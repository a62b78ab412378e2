"""The worker's log, on stderr."""

from __future__ import annotations

import logging
import sys


def log_to_stderr(*, verbose: bool, least: int) -> None:
    root = logging.getLogger("perdure")
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        root.addHandler(handler)
        root.propagate = False  # users' own logging set-up would print it twice
    root.setLevel(logging.DEBUG if verbose else least)
