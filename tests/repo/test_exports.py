"""The public names: they exist, and somebody can read about them."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def _public_names() -> list[str]:
    return list(getattr(importlib.import_module("perdure"), "__all__", ()))


def test_every_public_name_exists() -> None:
    """Each name of perdure.__all__ can be had from perdure, and none is listed twice."""
    package = importlib.import_module("perdure")
    names = _public_names()
    assert [name for name in names if not hasattr(package, name)] == []
    assert len(names) == len(set(names))


def test_every_public_name_is_documented(root: Path) -> None:
    """Each name of perdure.__all__ stands in the README or under docs/, as soon as there are any."""
    pages = [path for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))) if path.exists()]
    words = {word for page in pages for word in re.findall(r"\w+", page.read_text(encoding="utf-8"))}
    missing = [name for name in _public_names() if name not in words and not name.startswith("__")]
    assert not pages or not missing, f"not in README.md or docs/: {', '.join(missing)}"


def test_the_public_names_bring_no_more_than_they_need() -> None:
    """A module that declares agents loads neither the worker, the guard's hooks and scan, the driver, nor HTTP and mail."""
    code = (
        "import sys\nfrom perdure import Perdure, agent, run, step\n"
        "late = ('apsw', 'uvloop', 'rich', 'typer', 'http', 'email', 'secrets', 'perdure.worker.worker',\n"
        "    'perdure.kernel.activation', 'perdure.kernel.guard.hooks', 'perdure.kernel.guard.scan')\n"
        "print([name for name in late if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_one(root: Path) -> None:
    """The version of pyproject.toml is the one the package tells, and the changelog has a section for it."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package = importlib.import_module("perdure")
    assert getattr(package, "__version__", project["version"]) == project["version"]
    assert f"## {project['version']}" in (root / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_readme_is_packaged(root: Path) -> None:
    """Once there is a README, it is the package's page on the registry."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.get("readme") == "README.md" or not (root / "README.md").exists()
