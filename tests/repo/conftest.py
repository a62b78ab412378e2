"""Where the repository is, and its Python files, parsed once."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest


class Source(NamedTuple):
    path: Path
    name: str
    text: str
    tree: ast.Module


def _sources(root: Path, folder: str) -> list[Source]:
    found: list[Source] = []
    for path in sorted((root / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Source(path, path.relative_to(root).as_posix(), text, ast.parse(text, path)))
    return found


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def sources(root: Path) -> list[Source]:
    return _sources(root, "src/perdure")


@pytest.fixture(scope="session")
def own_tests(root: Path) -> list[Source]:
    return _sources(root, "tests")
