"""Docs are tests: what a user can name is in docs/reference.md."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import pytest

from perdure import errors
from perdure.base.status import Reason, Status
from perdure.cli import commands, failures, settings
from perdure.cli.lean import parser

if TYPE_CHECKING:
    from pathlib import Path

BUDGET = {"budget"}  # a reason of the face for what is still to come


@pytest.fixture(scope="module")
def reference(root: Path) -> str:
    return (root / "docs/reference.md").read_text(encoding="utf-8")


def _command_line() -> dict[str, list[str]]:
    """Every command with its options, as the parser knows them."""
    commands.add_demo(wanted=True)
    command = parser(commands.app)
    found = {name: [o for p in item.params for o in p.opts] for name, item in command.commands.items()}
    return found | {"": [option for param in command.params for option in param.opts]}


def test_every_command_and_option_is_documented(reference: str) -> None:
    """By its name as it is typed."""
    for command, options in _command_line().items():
        assert re.search(rf"`{command}\b|^\| `.*`{command} ", reference), command
        for option in options:
            assert not option.startswith("-") or re.search(rf"`{option}\b", reference), f"{command} {option}"


def test_every_error_is_documented(reference: str) -> None:
    """Each class of errors.py."""
    names = [
        name for name, item in vars(errors).items() if inspect.isclass(item) and item.__module__ == errors.__name__
    ]
    assert [name for name in names if f"`{name}`" not in reference] == []


def test_every_setting_is_documented(reference: str) -> None:
    """In the file and in the environment."""
    for name in settings._KNOWN:
        assert f"`{name}`" in reference
        assert f"`PERDURE_{name.upper()}`" in reference


def test_every_status_and_reason_is_documented(reference: str) -> None:
    """With what it means."""
    words = {*Status, *Reason} - BUDGET
    assert [str(word) for word in sorted(words) if f"`{word}`" not in reference] == []


def test_every_exit_code_is_documented(reference: str) -> None:
    """In the list of them."""
    listed = reference.partition("Exit codes: ")[2].partition("\n\n")[0]
    codes = {value for name, value in vars(failures).items() if name.isupper() and isinstance(value, int)}
    assert codes == {int(number) for number in re.findall(r"\b(\d+) [a-z]", listed)}
