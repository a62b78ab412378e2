"""The default factories that making an instance would call: those of the fields the call leaves out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from perdure.kernel.guard.code import Call


def factories(cls: type, call: Call) -> Iterator[tuple[str, Any]]:
    """Field and factory, for dataclasses, msgspec Structs and pydantic models."""
    if call.args is None:
        return
    for names, position, factory in (*_of_dataclass(cls), *_of_struct(cls), *_of_model(cls)):
        given = position is not None and position < call.args
        if not given and not any(name in call.keywords for name in names):
            yield names[0], factory


def _of_dataclass(cls: type) -> Iterator[tuple[tuple[str, ...], int | None, Any]]:
    position = 0
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.default_factory is not dataclasses.MISSING:
            yield (field.name,), None if field.kw_only or not field.init else position, field.default_factory
        if field.init and not field.kw_only:
            position += 1


def _of_struct(cls: type) -> Iterator[tuple[tuple[str, ...], int | None, Any]]:
    if not type(cls).__module__.startswith("msgspec"):
        return
    names: tuple[str, ...] = getattr(cls, "__struct_fields__", ())
    defaults: tuple[Any, ...] = getattr(cls, "__struct_defaults__", ())
    for position, default in enumerate(defaults, len(names) - len(defaults)):
        factory = getattr(default, "factory", None)
        if factory is not None:
            yield (names[position],), position, factory


def _of_model(cls: type) -> Iterator[tuple[tuple[str, ...], int | None, Any]]:
    fields: Any = vars(cls).get("__pydantic_fields__", {})
    for name, field in fields.items():
        factory = getattr(field, "default_factory", None)
        if factory is not None:
            aliases = (getattr(field, "alias", None), getattr(field, "validation_alias", None))
            yield (name, *(each for each in aliases if isinstance(each, str))), None, factory
