"""Which functions and classes are the user's own: those of the agent's package, or else of its file and folder (G9)."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import FunctionType

from perdure.kernel.guard import frames


@dataclass(frozen=True, slots=True)
class Home:
    """Where the user's code is. An agent of the runtime's own package (its demo) has only its file."""

    file: str
    package: str | None
    package_folder: str | None

    def owns(self, function: FunctionType) -> bool:
        return self._holds(function.__module__, function.__code__.co_filename)

    def owns_class(self, cls: type) -> bool:
        return self._holds(cls.__module__, getattr(sys.modules.get(cls.__module__), "__file__", None))

    def _holds(self, module: str | None, file: str | None) -> bool:
        if self.package is not None and _top(module) == self.package:
            return True
        if file is None or file == self.file:
            return file is not None
        folder = os.path.dirname(self.file)
        return bool(folder) and file.startswith(folder + os.sep) and frames.whose(file) is frames.Whose.USER


def home_of(function: FunctionType) -> Home:
    file = function.__code__.co_filename
    package = _top(function.__module__)
    folders = list(getattr(sys.modules.get(package), "__path__", ()))
    if not folders or package == "perdure":
        return Home(file, None, None)
    return Home(file, package, folders[0] + os.sep)


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]
