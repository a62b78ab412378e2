"""What the parser cannot read by itself: `kill -KILL`, and JSON that begins with a minus."""

from __future__ import annotations

import re
from typing import Final

_TAKE_A_VALUE: Final = frozenset({"--store"})
_KEPT: Final = frozenset({"-h", "-s"})
_NUMBER: Final = re.compile(r"-\d[\d.eE+-]*")
_NAMES_FOLLOW: Final = frozenset({"--id", "--queue", "--tag", "--store", "--note"})


def command_at(words: list[str]) -> int | None:
    """Where the command stands: options may stand before it."""
    skip = False
    for number, word in enumerate(words):
        if skip:
            skip = False
        elif word in _TAKE_A_VALUE:
            skip = True
        elif not word.startswith("-"):
            return number
    return None


def prepare(words: list[str]) -> list[str]:
    at = command_at(words)
    if at is None:
        return words
    head, rest = words[: at + 1], words[at + 1 :]
    match head[-1]:
        case "kill":
            return head + [_signal(word) for word in rest]
        case "run" | "resolve":
            return head + [_shielded(word, before) for word, before in zip(rest, [head[-1], *rest], strict=False)]
        case _:
            return words


def _signal(word: str) -> str:
    if word.startswith("--") or word in _KEPT or not re.fullmatch(r"-[A-Za-z0-9]+", word):
        return word
    return f"--signal={word[1:]}"


def _shielded(word: str, before: str) -> str:
    """A space before the minus: JSON does not mind, and no parser takes it for an option."""
    return f" {word}" if _NUMBER.fullmatch(word) and before not in _NAMES_FOLLOW else word
