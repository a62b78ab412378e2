"""From what the user gave to a store.

A store's driver is imported when it is asked for, not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from perdure.base.world import World
from perdure.errors import UsageError
from perdure.store.contract import Store

_SQLITE: Final = "sqlite"
_POSTGRES: Final = frozenset({"postgres", "postgresql"})


def open_store(url: str, world: World) -> Store:
    """The store behind a URL or a path. Nothing is read or written yet: that is its `open`."""
    from perdure.store.sqlite.store import SqliteStore  # keeps `import perdure` light

    return SqliteStore(_path(url), url=url, world=world)


def _path(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    path = url
    if mark:
        if scheme in _POSTGRES:
            raise UsageError(
                f"{scheme}:// is not there yet: this version of perdure stores in SQLite files only. Try sqlite:///perdure.db"
            )
        if scheme != _SQLITE:
            raise UsageError(
                f"{url!r}: unknown kind of store {scheme!r}. Use a path, such as perdure.db, or sqlite:///path"
            )
        path = _sqlite_path(url, rest)
    if path in ("", ":memory:") or path.startswith("file:"):
        raise UsageError(f"{url!r}: the store must be a file, because runs are to survive this process. Try perdure.db")
    if "\0" in path:
        raise UsageError(f"{url!r}: a path cannot contain a NUL character")
    try:
        # Absolute: agent code may change the current folder later. Without links: the log lies beside the real file.
        return str(Path(path).expanduser().resolve())
    except (RuntimeError, OSError) as exc:
        raise UsageError(f"{url!r}: not a usable path ({exc}). Write the path out") from exc


def _sqlite_path(url: str, rest: str) -> str:
    if rest == ":memory:":
        return rest
    if not rest.startswith("/"):
        raise UsageError(f"{url!r}: write sqlite:///relative/path or sqlite:////absolute/path")
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise UsageError(
            f"{url!r}: a store's URL takes no options. Remove everything from {'?' if parts.query else '#'} on"
        )
    return unquote(rest[1:])
