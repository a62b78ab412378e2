"""Style as tests: how the files under src/ are cut, and what may not stand in them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.repo.conftest import Source

function_lines_max = 70
file_lines_max = 300
file_lines_most = 400

# Packages whose __init__ is allowed to re-export, each with its reason.
reexporting = {
    "src/perdure": "the public face",
    "src/perdure/base/codec": "one module to its users, several files to its authors",
    "src/perdure/kernel/guard": "one module to its users, several files to its authors",
}

forbidden_modules = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
forbidden_calls = {"eval", "exec", "__import__"}


def test_every_folder_says_what_it_owns(root: Path) -> None:
    """Each package folder has an __init__.py whose docstring has the parts Owns, Does not own, Read first."""
    folders = {path.parent for path in (root / "src/perdure").rglob("*.py")} - {root / "src/perdure"}
    offenders: list[str] = []
    for folder in sorted(folders):
        init = folder / "__init__.py"
        doc = (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or "") if init.exists() else ""
        missing = [part for part in ("Owns:", "Does not own:", "Read first:") if part not in doc]
        if missing:
            offenders.append(f"{init.relative_to(root)}: lacks {', '.join(missing)}")
    assert not offenders, "\n".join(offenders)


def test_folder_files_hold_no_code(root: Path, sources: list[Source]) -> None:
    """An __init__.py holds its docstring only; the named exceptions hold imports and names, no functions."""
    offenders: list[str] = []
    for source in sources:
        if source.path.name != "__init__.py":
            continue
        reexports = source.path.parent.relative_to(root).as_posix() in reexporting
        allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign) if reexports else ()
        for node in source.tree.body[1:]:
            future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            lazy = reexports and isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"}
            typing_only = reexports and isinstance(node, ast.If)
            if not (future or lazy or typing_only or isinstance(node, allowed)):
                offenders.append(f"{source.name}:{node.lineno}: {type(node).__name__}")
    assert not offenders, "\n".join(offenders)


def test_every_module_says_what_it_is(sources: list[Source]) -> None:
    """Each module opens with a docstring."""
    offenders = [source.name for source in sources if not ast.get_docstring(source.tree)]
    assert not offenders, "\n".join(offenders)


def test_functions_fit_on_a_screen(sources: list[Source]) -> None:
    """No function is longer than 70 lines, docstring included."""
    offenders: list[str] = []
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > function_lines_max:
                    offenders.append(f"{source.name}:{node.lineno}: {node.name} has {lines} lines")
    assert not offenders, "\n".join(offenders)


def test_files_stay_short(sources: list[Source]) -> None:
    """Nine files of ten have at most 300 lines, and none has more than 400."""
    lengths = {source.name: len(source.text.splitlines()) for source in sources}
    long = [f"{name}: {lines} lines" for name, lines in lengths.items() if lines > file_lines_max]
    assert len(long) <= len(lengths) // 10, "\n".join(long)
    assert max(lengths.values()) <= file_lines_most, "\n".join(long)


def test_stored_data_is_never_code(sources: list[Source]) -> None:
    """S2. Nothing under src/ imports pickle or its kin, or calls eval or exec."""
    offenders = [f"{source.name}:{line}: {what}" for source in sources for line, what in _code_from_data(source.tree)]
    assert not offenders, "\n".join(offenders)


def test_the_search_for_code_from_data_finds_it() -> None:
    """A module with each forbidden thing gives one finding for each; its harmless neighbours give none."""
    bad = ast.parse("import pickle\nfrom marshal import loads\neval('1')\nbuiltins.exec('1')\nimport yaml.reader")
    good = ast.parse("model.eval()\nasyncio.create_subprocess_exec('ls')\n'no pickle'\nloop.exec_ = 1")
    assert sorted(line for line, _ in _code_from_data(bad)) == [1, 2, 3, 4, 5]
    assert list(_code_from_data(good)) == []


def test_randomness_in_the_code_has_a_seed(sources: list[Source]) -> None:
    """random.Random is never made without a seed: replay and simulation draw the same numbers again."""
    offenders = [
        f"{source.name}:{node.lineno}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"Random", "random.Random"}
        and not node.args
        and source.name != "src/perdure/base/world.py"
    ]
    assert not offenders, "\n".join(offenders)


def test_every_exception_of_the_checkers_has_a_reason(sources: list[Source]) -> None:
    """Each noqa, type: ignore, pyright: ignore and pragma is followed by its reason on the same line."""
    offenders: list[str] = []
    for source in sources:
        for number, line in enumerate(source.text.splitlines(), 1):
            for mark in ("# noqa", "# type: ignore", "# pyright: ignore", "# pragma:"):
                _, found, rest = line.partition(mark)
                if found and not rest.partition("#")[2].strip() and not rest.partition(" - ")[2].strip():
                    offenders.append(f"{source.name}:{number}: {line.strip()}")
    assert not offenders, "add the reason: `# noqa: X123  # why`\n" + "\n".join(offenders)


def _code_from_data(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case ast.Call(func=ast.Name(id=name)) if name in forbidden_calls:
                yield node.lineno, f"{name}()"
                continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id="builtins"), attr=name)) if name in forbidden_calls:
                yield node.lineno, f"builtins.{name}()"
                continue
            case _:
                continue
        yield from ((node.lineno, f"import {name}") for name in modules if name.split(".")[0] in forbidden_modules)
