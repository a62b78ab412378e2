"""The same ledger and fork server as for the crash tests."""

from __future__ import annotations

from tests.crash.conftest import case, kit, ledger, new_case

__all__ = ["case", "kit", "ledger", "new_case"]
