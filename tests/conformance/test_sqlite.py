"""SQLite keeps every promise of the store contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.store.open import open_store
from perdure.testing.conformance.suite import PROMISES, Promise, keep, name

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("promise", PROMISES, ids=name)
def test_sqlite_keeps(promise: Promise, tmp_path: Path) -> None:
    """Each promise of perdure.testing.conformance, on a file of its own."""
    keep(promise, lambda world: open_store(str(tmp_path / "store.db"), world))
