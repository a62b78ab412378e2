"""What SQLite's errors mean for the runtime.

S1. Damage is never mistaken for a passing trouble, nor the other way round.
"""

from __future__ import annotations

import apsw

from perdure.errors import PerdureError, StoreDamaged, StoreUnavailable, UsageError


class Locked(Exception):
    """Another connection holds the lock. Inline attempts meet this; it never leaves the store."""


class Unbatched(Exception):
    """One write of a batch cannot be stored: the batch is rolled back and goes run by run. Never leaves the store."""


REFUSED = (apsw.ConstraintError, apsw.TooBigError, UnicodeError, OverflowError, TypeError)
"""One value that cannot be written: the rest of the batch can."""

_BUSY = (apsw.BusyError, apsw.LockedError)
_DAMAGED = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.SQLError,
    apsw.SchemaChangeError,
    apsw.FormatError,
    apsw.MismatchError,
    apsw.ConstraintError,
)


def is_busy(exc: BaseException) -> bool:
    return isinstance(exc, _BUSY)


def translate(exc: Exception, path: str) -> PerdureError:
    """The exception that the caller gets for one of SQLite's."""
    match exc:
        case apsw.BusyError() | apsw.LockedError() | Locked():
            return StoreUnavailable(
                f"{path}: another program keeps the store locked. "
                "Close it (a database browser, a backup), then try again"
            )
        case apsw.FullError():
            return StoreUnavailable(
                f"{path}: the disk is full, nothing was written. Free some space; the work then goes on"
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreUnavailable(
                f"{path}: the store is read-only here ({exc}). "
                "Give this user write permission for the file and its folder"
            )
        case apsw.CantOpenError():
            return StoreUnavailable(
                f"{path}: cannot be opened ({exc}). Check the permissions of the file and its folder"
            )
        case apsw.TooBigError():
            return UsageError(
                f"{path}: a value is too big for SQLite ({exc}). Store it elsewhere and keep its name here"
            )
        case UnicodeDecodeError():
            return StoreDamaged(f"{path}: a stored text is damaged ({exc}). Keep a copy, restore a backup")
        case UnicodeError():
            return UsageError(f"{path}: a text cannot be stored as UTF-8 ({exc}). Use text without lone surrogates")
        case OverflowError():
            return UsageError(f"{path}: a number does not fit into 64 bits ({exc})")
        case _ if isinstance(exc, _DAMAGED):
            return StoreDamaged(
                f"{path}: the store is damaged ({exc}). Stop the workers, keep a copy, restore a backup"
            )
        case _:
            return StoreUnavailable(
                f"{path}: reading or writing failed ({exc}). Check the disk; the work goes on when it is back"
            )
