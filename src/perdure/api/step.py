"""`@step`: a function whose every call inside a run is recorded. Outside a run, and inside another step, it is an ordinary call."""

from __future__ import annotations

import functools
import inspect
from asyncio import _get_running_loop as get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar, overload

from perdure.api.registry import module_of
from perdure.base import codec, limits
from perdure.errors import UsageError
from perdure.kernel.loop import RunLoop
from perdure.kernel.spec import StepSpec
from perdure.rules import backoff as backoff_rule
from perdure.rules.backoff import Backoff
from perdure.rules.effect import Effect, OnDoubt, StepRule

P = ParamSpec("P")
R = TypeVar("R")


class Step(Generic[P, R]):
    """A step. `fn` is the function itself."""

    __perdure_step__ = True

    def __init__(self, fn: Callable[P, Any], spec: StepSpec) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.spec = spec

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        loop = get_running_loop()
        if type(loop) is RunLoop:
            made: R = loop.owner.step(self.spec, args, kwargs)
            return made
        return self.fn(*args, **kwargs)  # type: ignore[no-any-return]  # a `cast` would be felt in every step

    def __repr__(self) -> str:
        return f"<step {self.spec.name}>"


@overload
def step(fn: Callable[P, Awaitable[R]], /) -> Step[P, Awaitable[R]]: ...


@overload
def step(fn: Callable[P, R], /) -> Step[P, Any]: ...


@overload
def step(
    *,
    effect: Literal["read", "idempotent", "once"] = "idempotent",
    probe: Callable[..., Any] | None = None,
    on_doubt: OnDoubt = "in_doubt",
    retries: int = 0,
    backoff: float | Backoff | None = None,
    timeout: float | None = limits.step_timeout_s,
    heartbeat_timeout: float | None = None,
    name: str | None = None,
    limit: str | None = None,
    raises: type[BaseException] | Sequence[type[BaseException]] = (),
    cpu: bool = False,
) -> Callable[[Callable[P, Any]], Step[P, Any]]: ...


def step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a step.

    `effect`: `"read"` touches nothing outside and may be repeated freely; `"idempotent"` (the default) may run again after a crash, always with the
    same `run.key`; `"once"` is never repeated blindly. `probe`: asks the world whether the effect happened: `None` or `False` for no, anything else is the
    result. `retries`, `backoff` (first wait in seconds, or a `Backoff`), `timeout` and `heartbeat_timeout` in seconds. `raises`: exception classes
    that agent code gets as such; others arrive as `StepError`. `cpu=True` runs a plain function in a process of its own.
    """
    if fn is not None and not callable(fn):
        raise UsageError(f"@step takes options by name: @step(effect=…), not {fn!r}")
    for name in options:
        if name not in _OPTIONS:
            raise UsageError(f"@step has no option {name!r}. Use {', '.join(_OPTIONS)}")
    if fn is None:
        return functools.partial(_make, **options)
    return _make(fn, **options)


def _make(
    fn: Callable[..., Any],
    *,
    effect: str = "idempotent",
    probe: Callable[..., Any] | None = None,
    on_doubt: OnDoubt = "in_doubt",
    retries: int = 0,
    backoff: float | Backoff | None = None,
    timeout: float | None = limits.step_timeout_s,
    heartbeat_timeout: float | None = None,
    name: str | None = None,
    limit: str | None = None,
    raises: Any = (),
    cpu: bool = False,
) -> Step[..., Any]:
    label = getattr(fn, "__name__", "") if name is None else name
    classes: tuple[Any, ...] = (raises,) if isinstance(raises, type) or not hasattr(raises, "__iter__") else (*raises,)
    _check(fn, label, effect, limit)
    _check_others(label, probe, classes)
    is_async = inspect.iscoroutinefunction(fn)
    if cpu and is_async:
        raise UsageError(
            f"step {label}: cpu=True is for plain functions; an async one would wait in a process of its own. Make it `def`"
        )
    if cpu and heartbeat_timeout is not None:
        raise UsageError(
            f"step {label}: heartbeats do not reach the worker from a process. Use timeout=, or leave out cpu=True"
        )
    rule = StepRule(
        effect=Effect(effect),
        probe=probe is not None,
        on_doubt=on_doubt,
        retries=retries,
        backoff=backoff_rule.of(backoff),
        timeout_s=timeout,
        heartbeat_timeout_s=heartbeat_timeout,
    )
    codec.register_from(fn)
    spec = StepSpec(
        name=label,
        fn=fn,
        rule=rule,
        where="process" if cpu else "loop" if is_async else "thread",
        probe=probe.fn if isinstance(probe, Step) else probe,
        raises=classes,
        limit=limit,
        module=module_of(fn),
        qualname=str(getattr(fn, "__qualname__", label)),
    )
    return Step(fn, spec)


_OPTIONS: Final = tuple(inspect.signature(_make).parameters)[1:]


def _check(fn: Callable[..., Any], label: object, effect: str, limit: str | None) -> None:
    if isinstance(fn, Step):
        raise UsageError(f"{label} is a step already: @step stands on it twice")
    if getattr(fn, "__perdure_agent__", False) or inspect.isclass(fn):
        kind = "a class" if inspect.isclass(fn) else "an agent"
        raise UsageError(f"{label} is {kind}; a step is a function. Put @step above an `async def` or a `def`")
    if not isinstance(label, str) or not label or len(label) > limits.name_chars_max:
        raise UsageError(f"a step needs a name of at most {limits.name_chars_max} characters: @step(name=…)")
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise UsageError(
            f"step {label} is a generator. A step returns one value: collect the items in it, or make each item a step"
        )
    if effect not in Effect.__members__.values():
        wanted = ", ".join(repr(str(e)) for e in Effect)
        extra = " Transactional steps are not there yet." if effect == "transactional" else ""
        raise UsageError(f"step {label}: effect={effect!r} is not a rule. Use one of {wanted}.{extra}")
    if limit is not None:
        raise UsageError(f"step {label}: limit={limit!r}: named limits are not there yet. Leave it out")


def _check_others(label: str, probe: object, raises: tuple[object, ...]) -> None:
    if probe is not None and not callable(probe):
        raise UsageError(f"step {label}: probe={probe!r} is not a function. It takes the step's arguments")
    for item in raises:
        if not isinstance(item, type) or not issubclass(item, BaseException):
            raise UsageError(f"step {label}: raises={item!r} is not an exception class. Use raises=(ValueError, …)")
