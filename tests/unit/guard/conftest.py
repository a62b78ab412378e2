"""Agents as small files of their own, and a pump that runs one as the loop would: marked, in this thread."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import sys
from types import ModuleType

import pytest

from perdure.errors import HiddenState
from perdure.kernel.guard import hooks, marks, scan

_numbers = itertools.count()


class _Step:
    """What `@step` makes: a mark, and a call that runs outside agent code."""

    __perdure_step__ = True

    def __init__(self, fn):
        self.fn = fn

    async def __call__(self, *args):
        with marks.paused():
            return self.fn(*args)


def _step(fn=None, **options):
    return _step if fn is None else _Step(fn)


_step.__module__ = "perdure.api.step"
_step.__name__ = "step"


@pytest.fixture(autouse=True, scope="session")
def _hooks():
    hooks.install()


@pytest.fixture
def agent_file(tmp_path):
    """Make a module of this source, with `step` in it; it ends with the test."""
    made = []

    def make(source: str, name: str | None = None) -> ModuleType:
        name = name or f"guarded_agent_{next(_numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        module.step = _step
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield make
    for name in made:
        del sys.modules[name]


@pytest.fixture
def pump():
    """Run an agent to its end as agent code, and give its result."""

    def run(fn, *args):
        marks.enter()
        try:
            result = fn(*args)
            if not inspect.iscoroutine(result):
                return result
            try:
                result.send(None)
            except StopIteration as done:
                return done.value
            finally:
                result.close()
            raise AssertionError("the agent waits for something")
        finally:
            marks.leave()

    return run


@pytest.fixture
def found_by_scan():
    def find(fn) -> HiddenState | None:
        try:
            scan.check_agent(fn)
        except HiddenState as refused:
            return refused
        return None

    return find


@pytest.fixture
def found_by_run(pump):
    def find(fn) -> HiddenState | None:
        try:
            pump(fn)
        except HiddenState as refused:
            return refused
        return None

    return find
