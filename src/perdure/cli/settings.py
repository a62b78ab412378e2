"""Where settings come from: flag, then environment, then file, then default. The first one that is given wins.

F1. A setting that is misspelt or has the wrong kind is an error, never ignored.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from perdure.base import limits
from perdure.errors import UsageError

DEFAULT_STORE: Final = "perdure.db"
_KNOWN: Final = ("store", "lease_ttl_s", "grace_s")


@dataclass(frozen=True, slots=True)
class Common:
    """What every command takes."""

    store: str | None = None
    json: bool = False
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    store: str
    lease_ttl_s: float
    grace_s: float
    prefix: str
    """How a command is called again with the same store: `perdure`, or with its `--store`."""


def read(common: Common, *, lease_ttl_s: float | None = None, grace_s: float | None = None) -> Settings:
    source, values = _file()
    return Settings(
        store=common.store or os.environ.get("PERDURE_STORE") or _text(values, source) or DEFAULT_STORE,
        lease_ttl_s=_seconds("lease_ttl_s", lease_ttl_s, values, source, default=limits.lease_ttl_s, least=0.1),
        grace_s=_seconds("grace_s", grace_s, values, source, default=limits.grace_s, least=0.0),
        prefix=f"perdure --store {common.store}" if common.store else "perdure",
    )


def _file() -> tuple[str, dict[str, Any]]:
    """The settings in this folder: `perdure.toml`, else `[tool.perdure]` of `pyproject.toml`."""
    for name in ("perdure.toml", "pyproject.toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"{name} cannot be read: {exc}. Make it readable UTF-8 text, or remove it") from exc
        values = _table(name, text)
        if values is not None:
            return name, values
    return "", {}


def _table(name: str, text: str) -> dict[str, Any] | None:
    if name == "pyproject.toml" and "perdure" not in text:
        return None  # most projects; saves reading it
    import tomllib

    try:
        values: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f"{name} is not TOML: {exc}. Mend that line") from exc
    if name == "pyproject.toml":
        values = values.get("tool", {}).get("perdure")
        if values is None:
            return None
    if not isinstance(values, dict):
        raise UsageError(f"{name}: tool.perdure is to be a table: [tool.perdure]")
    table = cast("dict[str, Any]", values)
    for key in table:
        if key not in _KNOWN:
            raise UsageError(f"{name}: there is no setting {key!r}. Use {', '.join(_KNOWN)}")
    return table


def _text(values: dict[str, Any], source: str) -> str | None:
    store = values.get("store")
    if store is not None and not isinstance(store, str):
        raise UsageError(f'{source}: store is to be text, not {store!r}: store = "{DEFAULT_STORE}"')
    return store


def _seconds(
    name: str, flag: float | None, values: dict[str, Any], source: str, *, default: float, least: float
) -> float:
    variable = f"PERDURE_{name.upper()}"
    text = os.environ.get(variable)
    if flag is not None:
        where, given = f"--{name.replace('_', '-')}", flag
    elif text:
        where, given = variable, text
    elif name in values:
        where, given = f"{source}: {name}", values[name]
    else:
        return default
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise UsageError(f"{where} is to be a number of seconds, not {given!r}") from None
    if not least <= number < float("inf"):
        raise UsageError(f"{where} is to be at least {least:g} seconds, not {given!r}")
    return number
