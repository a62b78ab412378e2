"""What these tests share: the agents, a plain event loop with a clock of its own, and how to play both."""

from __future__ import annotations

import asyncio
import importlib.util
import selectors
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def load(name: str) -> Any:
    """A module beside this file, loaded once."""
    known = f"kernel_tests_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, HERE / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[known] = module
        spec.loader.exec_module(module)
    return sys.modules[known]


class _Clock(selectors.BaseSelector):
    """A selector that moves the clock instead of waiting."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("the plain loop would wait for ever")
        self.now += max(0.0, timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> Any:
        return None

    def get_map(self) -> dict[Any, Any]:
        return {}


class PlainLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, in virtual time."""

    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)
        self._clock_resolution = 1e-9
        self.set_exception_handler(
            lambda loop, context: None
        )  # what asyncio says about its own gatherings is not the subject

    def time(self) -> float:
        return self._clock.now


def plain(agent: Any, *args: Any, cancel_after_s: float | None = None) -> tuple[str, Any]:
    """Status and result of the same function under plain asyncio."""

    async def main() -> Any:
        if cancel_after_s is not None:
            asyncio.get_running_loop().call_later(cancel_after_s, asyncio.current_task().cancel)
        return await agent.fn(*args)

    with asyncio.Runner(loop_factory=PlainLoop) as runner:
        try:
            return "completed", runner.run(main())
        except asyncio.CancelledError:
            return "cancelled", None
        except Exception as exc:
            return "failed", f"{type(exc).__name__}: {exc}"
