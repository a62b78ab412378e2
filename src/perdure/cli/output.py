"""Writing: data on stdout, everything else on stderr.

O1. What is written does not depend on whether a person or a pipe reads it; only colour and width do.
O2. Text from a store never reaches a terminal with its control characters.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from perdure.base import limits

if TYPE_CHECKING:
    from rich.console import Console

_WIDE: Final = 4_000
_state: dict[str, TextIO] = {}


def stdout() -> TextIO:
    return _state.get("data", sys.stdout)


def keep_stdout() -> None:
    """From here on only `emit` and `line` reach stdout: what users' code and its children print goes to stderr."""
    if "data" in _state:
        return
    sys.stdout.flush()
    try:
        data = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
        os.dup2(2, 1)
    except OSError:
        return  # one of the two is closed: nothing to keep apart
    _state["data"] = data
    sys.stdout = sys.stderr


def flush() -> None:
    for stream in (stdout(), sys.stdout, sys.stderr):
        try:
            stream.flush()
        except ValueError:
            pass  # closed


def emit(value: Any) -> None:
    """One JSON value, on one line."""
    line(to_json(value))


def line(text: str) -> None:
    stream = stdout()
    stream.write(text + "\n")


def to_json(value: Any, *, indent: int | None = None) -> str:
    # A stored number may have more digits than Python turns into text by default.
    sys.set_int_max_str_digits(limits.bigint_bits_max)
    encoding = (stdout().encoding or "ascii").lower().replace("-", "")
    return json.dumps(value, ensure_ascii=encoding != "utf8", indent=indent, default=str)


def note(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


def plain(text: str) -> str:
    """Without control characters (O2); line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def short(value: Any, chars_max: int) -> str:
    """A value in one line of at most so many characters."""
    text = plain(to_json(value)).replace("\n", " ")
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def console(stream: TextIO) -> Console:
    from rich.console import Console

    terminal = stream.isatty()
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system="auto" if colour else None,
        width=None if terminal else _WIDE,
        highlight=False,
        markup=False,
        emoji=False,
    )


STATUS_STYLES: Final = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "parked": "bold yellow",
    "paused": "yellow",
    "cancelled": "dim",
}


def table(headers: list[str], rows: list[list[str]], *, status_column: int) -> None:
    """A table for people; as wide as its content, or as the terminal."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, header in enumerate(headers):
        last = number == len(headers) - 1
        shown.add_column(header, no_wrap=True, overflow="ellipsis" if last else "fold", ratio=None)
    for row in rows:
        cells = [Text(plain(cell)) for cell in row]
        cells[status_column].stylize(STATUS_STYLES.get(row[status_column].partition(" ")[0], ""))
        shown.add_row(*cells)
    target = console(stdout())
    if target.is_terminal:
        target.print(shown)
        return
    with target.capture() as captured:
        target.print(shown)
    for text in captured.get().splitlines():
        line(text.rstrip())
