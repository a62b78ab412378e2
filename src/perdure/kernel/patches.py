"""What `run.patched(name)` answers on replay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from perdure.base.records import AnyRecord, Asked, Patched


def recorded(name: str, journal: Sequence[AnyRecord], following: int, asked: int) -> bool | None:
    """Did the run take it here? None where the journal has nothing more to say. `asked`: how many steps the code has asked for since the last delivery.

    Patches that the code has dropped meanwhile stand between and are passed over.
    """
    for record in islice(journal, following, None):
        if isinstance(record, Patched):
            if record.name == name:
                return True
        elif isinstance(record, Asked) and asked:
            asked -= 1
        else:
            return False
    return None
