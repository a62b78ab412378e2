"""The scan of an agent before it runs: what it, and the user's functions it names, would read of hidden state.

G8. The scan runs nothing and imports nothing; what it cannot resolve it lets pass, the hooks come after it.
G9. It follows only the user's own code, and never into a step or an agent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeAlias
from weakref import WeakSet

from perdure.kernel.guard import bans, frames
from perdure.kernel.guard.bans import Kind
from perdure.kernel.guard.code import Call, Use
from perdure.kernel.guard.factories import factories
from perdure.kernel.guard.home import Home, home_of
from perdure.kernel.guard.names import (
    MISSING,
    Value,
    attribute,
    callables,
    is_durable,
    is_recorded,
    makes_steps,
    method_of_held,
    touched,
    verdict,
)
from perdure.kernel.guard.refusal import Finding, refusal
from perdure.kernel.guard.scope import Scope, scope_of

_Verdict: TypeAlias = tuple[str, Kind] | None

_passed: WeakSet[FunctionType] = WeakSet()


def check_agent(fn: Callable[..., Any]) -> None:
    """Raise `HiddenState` for what this agent would read outside steps; the error names all of it.

    Once for each function: what passed is not scanned again.
    """
    if isinstance(fn, FunctionType) and fn in _passed:
        return
    if is_recorded(fn):
        fn = getattr(fn, "__wrapped__", fn)
    functions = [each for each in callables(fn) if isinstance(each, FunctionType)]
    if not functions:
        return
    home = home_of(functions[-1])
    frames.claim(home.file, home.package_folder)
    scan = _Scan(home)
    for function in functions:
        scan.follow(function)
    scan.run()
    if scan.findings:
        raise refusal(scan.findings)
    _passed.update(functions)


class _Scan:
    """One walk over the agent's code and all it reaches, nearest first."""

    def __init__(self, home: Home) -> None:
        self.findings: list[Finding] = []
        self._home = home
        self._seen: set[CodeType] = set()
        self._queue: deque[FunctionType] = deque()

    def follow(self, function: FunctionType) -> None:
        if function.__code__ not in self._seen and self._home.owns(function):
            self._seen.add(function.__code__)
            self._queue.append(function)

    def run(self) -> None:
        while self._queue:
            self._scan(scope_of(self._queue.popleft()))

    def _scan(self, scope: Scope) -> None:
        found = [
            (line, (f".{attr}()", bans.ATTRIBUTES[attr]))
            for attr, line in scope.reading.attributes
            if attr in bans.ATTRIBUTES
        ]
        found += [(use.line, judged) for use in scope.reading.uses if (judged := self._judge(use, scope))]
        found.sort(key=lambda each: each[0])
        file = scope.code.co_filename
        self.findings += [Finding(file, line, scope.function, what, kind) for line, (what, kind) in found]
        for nested in scope.reading.nested:
            takers = (scope.walk(use)[-1].obj for use in scope.reading.takers_of(nested))
            if not any(makes_steps(taker) for taker in takers):
                self._scan(scope.inside(nested))

    def _judge(self, use: Use, scope: Scope) -> _Verdict:
        path = scope.walk(use)
        if any(self._is_foreign(value.obj) for value in path):
            return None
        for value in path:
            if found := touched(value):
                return found
        call = scope.reading.call_of(use)
        if call is None and self._is_handed_over(use, scope):
            return None
        if call is not None and use.attrs:
            if kind := bans.ATTRIBUTES.get(use.attrs[-1]):
                return f"{use.text}()", kind
            for holder, attr in zip(path, use.attrs, strict=False):
                if held := method_of_held(holder.obj, attr):
                    return held
        return self._judge_target(path[-1], use, call)

    def _judge_target(self, value: Value, use: Use, call: Call | None) -> _Verdict:
        if found := verdict(value):
            name, kind = found
            return (_called(name, use), kind) if _counts(name, value.obj, call) else None
        if isinstance(value.obj, type):
            return self._judge_class(value.obj, call) if call is not None else None
        self._follow_all(value.obj)
        return None

    def _judge_class(self, cls: type, call: Call) -> _Verdict:
        """Follow what making an instance of the user's own class runs."""
        if not self._home.owns_class(cls):
            return None
        for name in ("__new__", "__init__", "__post_init__", "model_post_init"):
            self._follow_all(attribute(Value(cls), name).obj)
        for name, factory in factories(cls, call):
            if found := verdict(Value(factory)):
                return f"{found[0]}(), the default factory of {cls.__name__}.{name}", found[1]
            self._follow_all(factory)
        return None

    def _follow_all(self, obj: Any) -> None:
        for each in callables(obj):
            if isinstance(each, FunctionType):
                self.follow(each)

    def _is_handed_over(self, use: Use, scope: Scope) -> bool:
        """Whether this is an argument of the runtime's, such as in `step(time.time)`: it is not called here."""
        around = scope.reading.calls_around(use.starts[0], use.end)
        return any(is_durable(scope.walk(each)[-1].obj) for each in around)

    def _is_foreign(self, obj: Any) -> bool:
        """A step, an agent, or the runtime; but helpers beside an agent of the runtime's own package are its own."""
        if isinstance(obj, FunctionType) and self._home.owns(obj):
            return is_recorded(obj)
        return is_durable(obj)


def _counts(name: str, obj: Any, call: Call | None) -> bool:
    """Whether this use is a read: called, or kept to be called, and not given all it depends on (G3)."""
    needed = bans.ARGS_NEEDED.get(name)
    if call is None:
        return needed is None and obj is not MISSING and not isinstance(obj, type)
    if needed is not None:
        return call.args is not None and call.args + len(call.keywords) < needed
    return True


def _called(name: str, use: Use) -> str:
    return f"{name}()" if f".{name}".endswith(f".{use.text}") else f"{use.text}(), which is {name}(),"
