"""What callers pass, checked before anything of it reaches the store: a wrong value is named, with the right form."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, cast

from perdure.base import limits
from perdure.base.status import Status
from perdure.errors import UsageError
from perdure.store.contract import Where

_INT64_MAX: Final = 2**63 - 1
_FIELDS: Final = "status, agent, queue, tags, id_prefix, created_after or created_before"


def store_url(url: object) -> str:
    if not isinstance(url, str | os.PathLike):
        raise UsageError(f'a store is a path or a URL, not {url!r}: Perdure("perdure.db")')
    return os.fsdecode(cast("os.PathLike[str] | str", url))


def run_id(id: object) -> str:
    if not isinstance(id, str) or not id or len(id) > limits.run_id_chars_max or not id.isprintable():
        raise UsageError(f"a run's id is printable text of 1 to {limits.run_id_chars_max} characters, not {id!r}")
    return id


def queue(name: object) -> str:
    if not isinstance(name, str) or not name or len(name) > limits.name_chars_max or not name.isprintable():
        raise UsageError(f"a queue's name is printable text of 1 to {limits.name_chars_max} characters, not {name!r}")
    return name


def priority(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or abs(number) > _INT64_MAX:
        raise UsageError(f"a priority is a whole number of at most 64 bits, not {number!r}. Higher goes first")
    return number


def delay(seconds: object) -> float:
    if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds > limits.delay_s_max:
        raise UsageError(f"a delay is a number of seconds, at most {limits.delay_s_max:.0f}, not {seconds!r}")
    return float(seconds)


def tags(given: Any) -> dict[str, str]:
    pairs = _pairs(given)
    if (
        pairs is None
        or len(pairs) > limits.tags_max
        or not all(isinstance(k, str) and isinstance(v, str) for k, v in pairs.items())
    ):
        raise UsageError(f'tags are at most {limits.tags_max} pairs of text, such as {{"team": "a"}}, not {given!r}')
    return dict(pairs)


def note(text: object) -> str | None:
    if text is not None and not isinstance(text, str):
        raise UsageError(f"a note is text, not {text!r}")
    if text is not None and len(text) > limits.note_chars_max:
        raise UsageError(f"a note has at most {limits.note_chars_max} characters, this one has {len(text)}")
    return text


def limit(rows: object) -> int | None:
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 0):
        raise UsageError(f"list(limit=…) is a number of runs, or None for all, not {rows!r}")
    return rows


def where(given: Any) -> Where:
    if given is None:
        return Where()
    if isinstance(given, Where):
        return given
    pairs = _pairs(given)
    if pairs is None:
        raise UsageError(f'list(where=…) is a dict such as {{"status": "failed"}}, not {given!r}. Fields: {_FIELDS}')
    fields: dict[str, Any] = {}
    for name, value in pairs.items():
        match name:
            case "status":
                fields["statuses"] = [_status(item) for item in _texts(name, value)]
            case "agent":
                fields["agents"] = _texts(name, value)
            case "queue" | "id_prefix":
                fields[name] = _text(name, value)
            case "tags":
                fields[name] = tags(value)
            case "created_after" | "created_before":
                fields[name] = _time(name, value)
            case _:
                raise UsageError(f"list(where=…): no field {name!r}. Use {_FIELDS}")
    return Where(**fields)


def _pairs(given: object) -> dict[Any, Any] | None:
    return {**given} if isinstance(given, dict) else None  # pyright: ignore[reportUnknownVariableType]  # any dict


def _texts(name: str, value: object) -> list[str]:
    """One text or several; agents may be given as what `@agent` made."""
    items: Iterable[Any] = (
        cast("Iterable[Any]", value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    )
    return [_text(name, getattr(getattr(item, "spec", None), "name", item)) for item in items]


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"list(where=…): {name!r} is text, not {value!r}")
    return value


def _status(word: str) -> str:
    if word not in list(Status):
        raise UsageError(f"list(where=…): there is no status {str(word)!r}. Use {', '.join(Status)}")
    return str(word)


def _time(name: str, value: object) -> float:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.timestamp()
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise UsageError(f"list(where=…): {name!r} is a datetime with a time zone, or seconds since 1970, not {value!r}")
