"""`@agent`: an async function whose runs survive the process."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar, overload

from perdure.api import registry
from perdure.base import codec, limits
from perdure.errors import UsageError
from perdure.kernel.spec import AgentSpec

P = ParamSpec("P")
R = TypeVar("R")


class Agent(Generic[P, R]):
    """An agent. Called, it is the plain function; `app.start(agent, …)` makes a run of it."""

    __perdure_agent__ = True

    def __init__(self, fn: Callable[P, Coroutine[Any, Any, R]], spec: AgentSpec) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.spec = spec

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<agent {self.spec.name}>"


@overload
def agent(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Agent[P, R]: ...


@overload
def agent(*, name: str | None = None) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Agent[P, R]]: ...


def agent(fn: Callable[..., Any] | None = None, /, *, name: str | None = None, state: object = None) -> Any:
    """Declare an agent. Its code runs on a loop of its own: plain asyncio is durable there, everything else belongs in a `@step`."""
    if state is not None:
        raise UsageError(
            "@agent(state=…): state agents are not there yet. Write a function agent, with its state in local variables"
        )
    if fn is None:
        return functools.partial(_make, name=name)
    if not callable(fn):
        raise UsageError(f"@agent takes options by name: @agent(name=…), not {fn!r}")
    return _make(fn, name=name)


def _make(fn: Callable[..., Any], *, name: str | None) -> Agent[..., Any]:
    label = getattr(fn, "__name__", "") if name is None else name
    if getattr(fn, "__perdure_step__", False):
        raise UsageError(
            f"{label} is a step; an agent is made of steps. Take @step away or write an agent that calls it"
        )
    if not inspect.iscoroutinefunction(fn):
        raise UsageError(
            f"agent {label} is not an `async def`. Plain `def` agents are not there yet: write `async def` and keep the blocking code in steps"
        )
    if not isinstance(label, str) or not label or len(label) > limits.name_chars_max:
        raise UsageError(f"an agent needs a name of at most {limits.name_chars_max} characters: @agent(name=…)")
    codec.register_from(fn)
    spec = AgentSpec(label, registry.module_of(fn), fn, registry.digest_of(fn))
    registry.add(spec)
    return Agent(fn, spec)
