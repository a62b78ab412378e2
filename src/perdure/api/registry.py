"""What the decorators have seen: agents by name. Decorators only register; nothing runs at import."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.errors import UsageError
from perdure.kernel.spec import AgentSpec

agents: dict[str, AgentSpec] = {}
"""Every agent of this process, by name. A worker serves all of them."""

_digests: dict[str, str] = {}


def add(spec: AgentSpec) -> None:
    known = agents.get(spec.name)
    if known is not None and (known.module, known.fn.__qualname__) != (spec.module, spec.fn.__qualname__):
        raise UsageError(
            f"two agents are named {spec.name!r}: {known.module}.{known.fn.__qualname__} and {spec.module}.{spec.fn.__qualname__}. "
            "Give one of them another name: @agent(name=…)"
        )
    agents[spec.name] = spec


def bound(spec: AgentSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as the agent's signature takes them: however they are written, equal calls are stored equally."""
    try:
        call = _signature(spec.fn).bind(*args, **kwargs)
    except TypeError as exc:
        raise UsageError(f"agent {spec.name}{_signature(spec.fn)} cannot be called like that: {exc}") from None
    return call.args, call.kwargs


@functools.lru_cache(maxsize=1024)
def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(fn)


def module_of(fn: Callable[..., Any]) -> str:
    """The module's importable name, also where it runs as a script: a worker elsewhere knows it by that."""
    name = getattr(fn, "__module__", None) or "?"
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


def digest_of(fn: Callable[..., Any]) -> str:
    """A digest of the code: of the file it stands in where there is one, so that helpers beside the agent count too."""
    try:
        file = inspect.getsourcefile(fn)
    except TypeError:
        file = None
    if file is not None and Path(file).is_file():
        if file not in _digests:
            _digests[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
        return _digests[file]
    code = fn.__code__
    return hashlib.sha256(code.co_code + repr(code.co_names).encode()).hexdigest()[:16]
