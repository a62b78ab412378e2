"""Typer without pydantic, and with a help that shows arguments as one types them.

Typer 0.29 converts every value through pydantic, which it imports for that: 100 ms at each start, and 20 MB that a
worker never gives back. The commands take plain words and numbers only, so those are converted here. A typer that
works otherwise ignores what is set here, and is slower, not wrong.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import typer
from typer.main import get_command

HELP_NAMES: Final = ["-h", "--help"]
_PLAIN: Final = (str, int, float, bool)


def parser(app: typer.Typer) -> Any:
    command: Any = get_command(app)
    for owner in (command, *getattr(command, "commands", {}).values()):
        # The help option is made on first use; only its names are needed for that.
        help_option = owner.get_help_option(SimpleNamespace(help_option_names=HELP_NAMES))
        for param in (*owner.params, help_option):
            kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
            if kind in _PLAIN or kind == list[str]:
                param._runtime_param = _Plain(kind)  # noqa: SLF001  # see the module's docstring
            if getattr(param, "param_type_name", "") == "argument":
                _show_as_typed(param)
    return command


def _show_as_typed(param: Any) -> None:
    """`ID…`, where typer has `{ID…}...` in the usage and `ID… <list[str]>` below it."""

    def usage(_ctx: object) -> list[str]:
        return [param.metavar]

    def line(_ctx: object) -> tuple[str, str]:
        return param.metavar, param.help

    param.get_usage_pieces, param.get_help_record = usage, line


class _Plain:
    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if self._kind == list[str]:
            return [str(item) for item in value or ()]
        if value is None or isinstance(value, self._kind):
            return value
        try:
            return self._kind(value)
        except ValueError:
            wanted = "a whole number" if self._kind is int else "a number"
            raise typer.BadParameter(f"{value!r} is not {wanted}", ctx=ctx, param=param) from None
