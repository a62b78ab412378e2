"""The words of a refusal: where, what, why, and what to do instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.errors import HiddenState
from perdure.kernel.guard.bans import Kind

_also_max = 20


@dataclass(frozen=True, slots=True)
class Finding:
    file: str
    line: int
    function: str
    what: str
    kind: Kind


def refusal(findings: Sequence[Finding]) -> HiddenState:
    """One error for all that was found; its place is that of the first."""
    assert findings
    first = findings[0]
    place = f"{first.file}:{first.line}"
    used = f"{place}: agent code uses {first.what} outside a step, in {first.function}()."
    lines = [f"{used} Refused: {first.kind.why}. Instead: {first.kind.instead}."]
    lines += [
        f"  also {each.file}:{each.line}: {each.what} in {each.function}(): {each.kind.instead}."
        for each in findings[1 : _also_max + 1]
    ]
    if len(findings) > _also_max + 1:
        lines.append(f"  and {len(findings) - _also_max - 1} more")
    return HiddenState("\n".join(lines), file=first.file, line=first.line)
