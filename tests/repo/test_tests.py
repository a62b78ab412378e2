"""Rules for the tests themselves."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.repo.conftest import Source

# A test that does not run proves nothing.
skipping = {"skip", "skipif", "xfail", "importorskip"}


def test_every_test_states_a_behaviour(own_tests: list[Source]) -> None:
    """Each test function has a docstring that says what must hold."""
    offenders = [
        f"{source.name}:{node.lineno}: {node.name}"
        for source in own_tests
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not offenders, "\n".join(offenders)


def test_no_test_is_skipped(own_tests: list[Source]) -> None:
    """No test uses skip, skipif, xfail or importorskip of pytest."""
    offenders = [
        f"{source.name}:{node.lineno}: {ast.unparse(node)}"
        for source in own_tests
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in skipping
        and ast.unparse(node.value) in {"pytest", "pytest.mark"}
    ]
    assert not offenders, "\n".join(offenders)


def test_every_async_test_would_run(own_tests: list[Source]) -> None:
    """Tests are plain functions: pytest would not await an async one."""
    offenders = [
        f"{source.name}:{node.lineno}: {node.name}"
        for source in own_tests
        for node in ast.walk(source.tree)
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert not offenders, "\n".join(offenders)
