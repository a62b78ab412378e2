"""What `run` was asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.cli.arguments import Call
from perdure.cli.settings import Common, Settings
from perdure.kernel.spec import AgentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    id: str | None
    queue: str
    priority: int
    delay: float
    tags: list[str]
    exit_when_idle: bool
    timeout: float | None
    quiet: bool
    detach: bool
    lease_ttl_s: float | None
    grace_s: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    target: str
    agent: AgentSpec
    call: Call | None  # None: no arguments were given, so an existing run is taken as it is
    options: RunOptions
    settings: Settings
    common: Common
    tags: dict[str, str]

    def attach(self, id: str) -> str:
        """How one waits for it again."""
        return f"Wait for it again with `{self.settings.prefix} run {self.target} --id {id}`"

    def go_on(self, id: str) -> str:
        """How the run is taken up again."""
        perdure, module = self.settings.prefix, self.target.rpartition(":")[0] or self.target
        return f"Go on with `{perdure} run {self.target} --id {id}` or `{perdure} worker {module}`"
