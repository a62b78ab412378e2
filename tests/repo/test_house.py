"""The two commands and what they stand on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

targets = ("demo", "test", "campaign", "bench", "soak", "lint", "types", "layers", "unit", "setup", "clean")


@pytest.mark.parametrize("target", targets)
def test_every_promised_target_exists(root: Path, target: str) -> None:
    """`make help` lists the target."""
    listed = subprocess.run(["make", "help"], cwd=root, check=True, capture_output=True, text=True).stdout
    assert re.search(rf"^  make {target} ", listed, re.MULTILINE)


def test_a_campaign_without_tests_is_a_failure(root: Path) -> None:
    """`make campaign` that finds no test fails and says so, instead of passing with nothing done."""
    arguments = ("DEB_PACKAGES=", "WORKERS=0", f"PY={sys.executable}", "ARGS=-k no_such_test_anywhere")
    command = ["make", "--old-file=.venv/.tools", "campaign", *arguments]  # the set-up is not this test's business
    outer = ("MAKE", "MFLAGS", "PYTEST_")  # this test may itself run under make and pytest
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    done = subprocess.run(command, cwd=root, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "no test was found" in done.stderr


def test_the_whole_check_is_one_script(root: Path) -> None:
    """.ci/run can be executed, and calls make test before make campaign."""
    script = root / ".ci/run"
    assert os.access(script, os.X_OK)
    assert "for target in test campaign" in script.read_text(encoding="utf-8")


def test_every_ignored_rule_has_its_reason(root: Path) -> None:
    """In pyproject.toml each rule that ruff ignores, and each per-file exception, has a comment on its line."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[tool.ruff.lint]")[2].partition("[tool.ruff.lint.flake8-tidy-imports]")[0]
    grouped = {'"AIR",', '"DJ",', '"FAST",', '"NPY",'}  # their reason stands above them
    entries = [line.strip() for line in section.splitlines() if re.match(r'\s+"[A-Z]+\d*",|"[^"]+" = \["', line)]
    assert len(entries) > 20
    assert [line for line in entries if "#" not in line and line not in grouped] == []


def test_tools_are_pinned_exactly(root: Path) -> None:
    """Every tool of the dev extra names one version."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tools = project["optional-dependencies"]["dev"]
    assert [tool for tool in tools if not re.fullmatch(r"[a-z-]+==[\d.]+", tool)] == []


def test_the_typed_marker_is_shipped(root: Path) -> None:
    """py.typed lies in the package, so that users' checkers read its types."""
    assert (root / "src/perdure/py.typed").exists()
