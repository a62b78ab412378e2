"""What the kernel and the worker know of an agent and of a step: values the decorators make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from perdure.base import codec
from perdure.rules.effect import StepRule


class AgentSpec(msgspec.Struct, frozen=True):
    name: str
    module: str
    fn: Callable[..., Any]
    digest: str


class StepSpec(msgspec.Struct, frozen=True):
    name: str
    fn: Callable[..., Any]
    rule: StepRule
    where: Literal["loop", "thread", "process"]
    probe: Callable[..., Any] | None = None
    raises: tuple[type[BaseException], ...] = ()
    limit: str | None = None
    module: str = ""
    qualname: str = ""


def input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """An agent's arguments as they stand on its run's row."""
    return codec.encode_call(args, kwargs)
