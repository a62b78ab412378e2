"""From `MODULE:AGENT` to an agent: dotted names, or paths of .py files.

The name under which a module is imported is stored with its runs, so a file gets the same name whichever way it is
given: the dotted name from the first folder above it that is no package.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Final

from perdure.api import registry
from perdure.api.agent import Agent
from perdure.errors import NotFound, UsageError
from perdure.kernel.guard.hooks import install as install_guard
from perdure.kernel.spec import AgentSpec

_OURS: Final = str(Path(__file__).resolve().parents[1]) + os.sep


def load_agent(target: str) -> AgentSpec:
    """The agent behind `MODULE:AGENT`, or the only one of `MODULE`."""
    module, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    loaded = load_module(module)
    served = agents_of(loaded)
    if not name:
        if len(served) == 1:
            return next(iter(served.values()))
        raise UsageError(f"{target!r} names no agent. {_offer(module, served)}")
    found = getattr(loaded, name, None)
    if isinstance(found, Agent):
        return found.spec
    if name in served:
        return served[name]
    if found is not None:
        kind = "a step" if getattr(found, "__perdure_step__", False) else f"a {type(found).__name__}"
        raise UsageError(
            f"{name!r} in {module} is {kind}, not an agent. Put @agent above its `async def`; {_offer(module, served)}"
        )
    close = difflib.get_close_matches(name, served, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(repr(c) for c in close)}?" if close else _offer(module, served)
    raise NotFound(f"there is no agent {name!r} in {module}. {hint}")


def load_modules(names: list[str]) -> None:
    """Import them all; each must bring an agent."""
    for name in names:
        if ":" in name:
            raise UsageError(
                f"{name!r}: a worker serves all agents of a module. Leave {name[name.rindex(':') :]!r} out"
            )
        loaded = load_module(name)
        if not agents_of(loaded):
            raise UsageError(f"{name} has no agents. Put @agent above an `async def` in it")


def agents_of(module: ModuleType) -> dict[str, AgentSpec]:
    """By the name one can use: of the variable, and of the agent."""
    found = {name: item.spec for name, item in vars(module).items() if isinstance(item, Agent)}
    for spec in registry.agents.values():
        if spec.module == module.__name__ and spec not in found.values():
            found[spec.name] = spec
    return found


def load_module(name: str) -> ModuleType:
    if not name:
        raise UsageError("the module's name is missing. Write MODULE:AGENT, such as app:digest or path/app.py:digest")
    dotted = _name_of_file(name) if name.endswith(".py") or os.sep in name else _checked_dotted(name)
    _first_on_path(Path.cwd())
    install_guard()  # before the module takes a clock by its name
    try:
        loaded = importlib.import_module(dotted)
    except ModuleNotFoundError as exc:
        if exc.name is not None and f"{dotted}.".startswith(f"{exc.name}.") and _frame_of_user(exc) is None:
            raise NotFound(_no_module(name, exc.name)) from exc
        raise UsageError(_did_not_import(name, exc)) from exc
    except SyntaxError as exc:
        place = f"{_relative(exc.filename or name)}:{exc.lineno or 0}"
        code = f": {exc.text.strip()}" if exc.text else ""
        raise UsageError(f"{name} does not import: {place}: SyntaxError: {exc.msg}{code}. Mend that line") from exc
    except (Exception, SystemExit) as exc:
        raise UsageError(_did_not_import(name, exc)) from exc
    if dotted != name:
        _check_same_file(name, loaded)
    return loaded


def _checked_dotted(name: str) -> str:
    if all(part.isidentifier() for part in name.split(".")):
        return name
    raise UsageError(
        f"{name!r} is neither a module's dotted name nor the path of a .py file. Write pkg.module or path/to/file.py"
    )


def _name_of_file(text: str) -> str:
    path = Path(text).expanduser().resolve()
    if not path.is_file():
        raise NotFound(f"there is no file {text}. {_files_nearby(path.parent)}")
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise UsageError(f"{text} cannot be imported: its name is to be a Python name with .py, such as my_agents.py")
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    _first_on_path(folder)
    return ".".join(parts if parts[-1] != "__init__" else parts[:-1])


def _first_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _check_same_file(text: str, loaded: ModuleType) -> None:
    file = getattr(loaded, "__file__", None)
    if file is None or Path(file).resolve() != Path(text).expanduser().resolve():
        raise UsageError(
            f"{text} has the name of another module, {loaded.__name__} ({file or 'built in'}). Rename the file"
        )


def _no_module(name: str, missing: str) -> str:
    part = f" (its part {missing!r} is missing)" if missing != name else ""
    return f"there is no module {name!r}{part}, seen from {Path.cwd()}. {_files_nearby(Path.cwd())}"


def _files_nearby(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("*.py"))[:8] if folder.is_dir() else []
    return f"Python files there: {', '.join(names)}" if names else "Give its dotted name, or the path of its .py file"


def _did_not_import(name: str, exc: BaseException) -> str:
    place = _frame_of_user(exc)
    where = f"{_relative(place.filename)}:{place.lineno}: " if place is not None else ""
    last = traceback.format_exception_only(exc)[-1].strip()
    last = f"{type(exc).__name__}: {exc}" if isinstance(exc, SystemExit | UsageError) else last
    return (
        f"{name} does not import: {where}{last}. `python -c 'import …'` shows the whole traceback"
        if not isinstance(exc, UsageError)
        else f"{name} does not import: {where}{exc}"
    )


def _frame_of_user(exc: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame that is neither Python's import machinery nor ours."""
    trace: TracebackType | None = exc.__traceback__
    frames = [
        f
        for f in traceback.extract_tb(trace)
        if not f.filename.startswith(("<frozen", _OURS)) and "importlib" not in f.filename
    ]
    return frames[-1] if frames else None


def _relative(file: str) -> str:
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def _offer(module: str, served: dict[str, AgentSpec]) -> str:
    if not served:
        return f"{module} has no agents: put @agent above an `async def` in it"
    return f"agents in {module}: {', '.join(served)}"
