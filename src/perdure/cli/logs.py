"""The worker's log, on stderr."""

from __future__ import annotations

import logging
import sys

from perdure.errors import Diverged


def log_to_stderr(*, verbose: bool, least: int) -> None:
    root = logging.getLogger("perdure")
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        root.addHandler(handler)
        root.propagate = False  # users' own logging set-up would print it twice
        if least > logging.INFO:
            handler.addFilter(_not_told_by_run)
    root.setLevel(logging.DEBUG if verbose else least)


def _not_told_by_run(record: logging.LogRecord) -> bool:
    """`run` says itself how its run stopped."""
    return not (isinstance(record.args, tuple) and any(isinstance(item, Diverged) for item in record.args))
