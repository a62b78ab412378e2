"""The entry point: read the words, do the task, end with the right code.

F2. A user's mistake never shows a traceback; a bug of perdure always does.
Exit codes: failures.py.
"""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, cast

from perdure.cli import argv, failures, output
from perdure.errors import UsageError


def main() -> int:
    """For a process of its own: what executes runs takes stdout and the signals over."""
    output.ensure_streams()
    try:
        code = _do(sys.argv[1:])
        output.flush()
        if "perdure.cli.stopping" in sys.modules:  # users' code was executed
            from perdure.cli.stopping import leave_soon

            leave_soon(code)
    except BrokenPipeError:
        _drop_stdout()
        return failures.BROKEN_PIPE
    except BaseException as exc:  # noqa: BLE001  # the last frame there is
        return _failed(exc)
    return code


def _do(given: list[str]) -> int:
    from perdure.cli import commands

    at = argv.command_at(given)
    word = given[at] if at is not None else None
    if commands.has_demo():
        commands.add_demo(wanted=word == "demo")
    if word is not None:
        _check_command(
            word,
            [item.name or cast("Any", item.callback).__name__ for item in commands.app.registered_commands],
            commands.NOT_YET,
        )
    task = _parse(commands.app, argv.prepare(given), word)
    if callable(task):
        return cast("Callable[[], int]", task)()
    return task if isinstance(task, int) else failures.OK


def _parse(app: Any, words: list[str], command: str | None) -> object:
    """What the command returns: a task. An exit code for --help and the like."""
    from typer.exceptions import TyperException

    from perdure.cli.lean import parser

    try:
        return parser(app).main(args=words or ["--help"], prog_name="perdure", standalone_mode=False)
    except TyperException as exc:
        more = f"perdure {command} --help" if command else "perdure --help"
        raise UsageError(f"{exc.format_message().rstrip('.')}. `{more}` shows how it is called") from exc
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise output.unwritable(exc) from exc  # of --help


def _check_command(word: str, known: Sequence[str], not_yet: frozenset[str]) -> None:
    if word in known:
        return
    if word in not_yet:
        raise UsageError(f"`perdure {word}` is not there yet in this version. `perdure --help` lists what is")
    close = difflib.get_close_matches(word, known, n=2, cutoff=0.5)
    hint = (
        f"Did you mean {' or '.join(f'`perdure {name}`' for name in close)}?"
        if close
        else "`perdure --help` lists the commands"
    )
    raise UsageError(f"there is no command {word!r}. {hint}")


def _failed(exc: BaseException) -> int:
    failure = failures.explain(exc)
    if isinstance(exc, SystemExit):
        return exc.code if isinstance(exc.code, int) else failures.OK if exc.code is None else failures.RUN_FAILED
    if isinstance(exc, output.Unwritable):
        failures.say(str(exc))
        _drop_stdout()
        return failures.UNWRITABLE
    try:
        output.flush()
        if failure is not None:
            failures.say(failure.message)
            return failure.code
        traceback.print_exception(exc)
        failures.say(
            f"this is a bug of perdure, not of yours ({type(exc).__name__}). Please report it with the lines above"
        )
    except (OSError, output.Unwritable):
        _drop_stdout()
    return failures.BUG if failure is None else failure.code


def _drop_stdout() -> None:
    """Nobody reads any more: Python must not complain about it at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (output.stdout(), sys.stdout):
        try:
            os.dup2(null, stream.fileno())
        except (OSError, ValueError):
            pass


if __name__ == "__main__":
    sys.exit(main())
