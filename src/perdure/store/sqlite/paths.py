"""Whether a path can be a store, said better than SQLite would say it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from perdure.errors import StoreUnavailable, StoreUnusable

_NO_PATH: Final = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EINVAL)
FREE_BYTES_MIN: Final = 1024 * 1024


def check_path(path: str) -> None:
    """Refuse what cannot become a store."""
    place = Path(path)
    folder = place.parent
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        _check_folder(path, folder)
        return
    except (OSError, ValueError) as exc:
        if isinstance(exc, OSError) and exc.errno not in _NO_PATH:
            raise _broken_folder(path, exc) from exc
        raise StoreUnusable(
            f"{path!r}: not a usable path ({exc}). Give the path of a file, such as perdure.db"
        ) from exc
    if stat.S_ISDIR(mode):
        raise StoreUnusable(f"{path}: this is a folder, a store is a file. Try {place / 'perdure.db'}")
    if not stat.S_ISREG(mode):
        raise StoreUnusable(f"{path}: this is not a regular file. Give the path of a file, such as perdure.db")
    if not os.access(path, os.R_OK | os.W_OK):
        raise read_only(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreUnavailable(
            f"{folder}: the store's folder is read-only for this user, and SQLite needs files beside the store. "
            "Give it write permission, or choose another store"
        )


def _check_folder(path: str, folder: Path) -> None:
    if not folder.is_dir():
        raise StoreUnusable(
            f"{path}: the folder {folder} does not exist. Create it (mkdir -p {folder}), or choose another store"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreUnavailable(
            f"{folder}: the folder is read-only for this user, so no store can be created there. Choose another store"
        )


def file_id(path: str) -> tuple[int, int] | None:
    """Which file stands under that name; None if there is none."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _broken_folder(path, exc) from exc
    return found.st_dev, found.st_ino


def is_another(path: str, file: tuple[int, int] | None) -> bool:
    """Certainly: a disk that does not answer proves nothing."""
    try:
        return file_id(path) != file
    except StoreUnavailable:
        return False


def read_only(path: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path}: the file is read-only for this user. Give it write permission (chmod u+w), or choose another store"
    )


def check_space(path: str) -> None:
    """A full disk can kill the process through shared memory (SIGBUS), so a worker does not start on one."""
    try:
        disk = os.statvfs(Path(path).parent)
    except OSError as exc:
        raise _broken_folder(path, exc) from exc
    if disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN:
        raise StoreUnavailable(
            f"{path}: the disk is full (under {FREE_BYTES_MIN // 1024} KiB free). Free some space, then start again"
        )


def sync_folder(path: str) -> None:
    """The name of a new file must survive a power cut too."""
    try:
        fd = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as exc:
        raise _broken_folder(path, exc) from exc


def _broken_folder(path: str, exc: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"{Path(path).parent}: the store's folder cannot be used ({exc}). Check the disk and the permissions"
    )
