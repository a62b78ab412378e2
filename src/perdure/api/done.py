"""`Done`: how a state agent will say that it has ended. A name of the face, so that its import line works today."""

from __future__ import annotations

from typing import Generic, TypeVar

from perdure.errors import UsageError

R = TypeVar("R")


class Done(Generic[R]):
    def __init__(self, result: R | None = None) -> None:
        raise UsageError("Done(…): state agents are not there yet. A function agent ends with `return`")
