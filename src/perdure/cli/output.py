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
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from rich.console import Console

_WIDE: Final = 4_000
_GAP: Final = 2
_state: dict[str, TextIO] = {}


class Unwritable(PerdureError):
    """Nothing can be written to stdout."""


def stdout() -> TextIO:
    return _state.get("data", sys.stdout)


def unwritable(exc: OSError) -> Unwritable:
    more = "Send it elsewhere; `perdure show ID` has the result of a run"
    return Unwritable(f"the output cannot be written: {exc.strerror}. {more}")


def ensure_streams() -> None:
    """Open what was closed before Python started, so that no file of the store gets the number of stdout."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


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
        except BrokenPipeError:
            raise
        except OSError as exc:
            raise unwritable(exc) from exc


def emit(value: Any) -> None:
    """One JSON value, on one line."""
    line(to_json(value))


def line(text: str) -> None:
    try:
        stdout().write(text + "\n")
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise unwritable(exc) from exc


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


def span(seconds: float) -> str:
    """A length of time in one unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 or not seconds else "<1 s"


def cropped(text: str, cells_max: int) -> str:
    """As much as fits into so many cells of a terminal."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= cells_max:
        return text
    return f"{set_cell_size(text, cells_max - 1).rstrip()}…" if cells_max > 0 else ""


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
    """A table for people. Only the last column gives way to a narrow terminal: a cut number or status would be wrong."""
    from rich.cells import cell_len
    from rich.text import Text

    shown = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(headers, *shown, strict=True)]
    target = console(stdout())
    room = max(0, target.width - sum(widths[:-1]) - _GAP * (len(widths) - 1))
    for row in (headers, *shown):
        style = "bold" if row is headers else STATUS_STYLES.get(row[status_column].partition(" ")[0], "")
        text = Text()
        for number, (cell, width) in enumerate(zip(row[:-1], widths, strict=False)):
            text.append(cell, style if row is headers or number == status_column else "")
            text.append(" " * (width - cell_len(cell) + _GAP))
        text.append(cropped(row[-1], room), "bold" if row is headers else "")
        text.rstrip()
        if target.is_terminal:
            target.print(text, soft_wrap=True)
        else:
            line(text.plain)
