"""pydantic models, without importing pydantic: a model can only exist where the user imported it.

Invariants D1 to D3 of `records.py` hold: fields, extra values, private values and the set of given fields all return.
"""

from __future__ import annotations

import sys
from typing import Any

from perdure.base.codec import wire
from perdure.base.codec.records import Parts
from perdure.base.codec.state import Fields, fit, hidden_slots, refuse_stray
from perdure.errors import StoreDamaged


def model_base() -> type | None:
    """`pydantic.BaseModel`, if the user's code has imported it."""
    return getattr(sys.modules.get("pydantic.main"), "BaseModel", None)


class ModelShape:
    code = wire.MODEL

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.hidden = hidden_slots(cls, ())

    def take(self, value: Any) -> Parts:
        fields: Fields = value.__dict__
        known: Fields = self.cls.__pydantic_fields__
        refuse_stray(value, frozenset(known), self.hidden)
        extra: Fields | None = value.__pydantic_extra__
        private: Fields | None = value.__pydantic_private__
        unset = [name for name in known if name not in fields]  # `model_construct` and `del` allow it
        note = [len(unset), *unset, *sorted(value.__pydantic_fields_set__)]
        # By name, because a `cached_property` remembers its value beside the fields.
        return note, [{name: fields[name] for name in known if name in fields}, extra or {}, private or {}]

    def build(self, note: Any, maps: list[Fields]) -> object:
        stored, extra, private = maps
        unset, given = note[1 : 1 + note[0]], note[1 + note[0] :]
        names = [name for name in self.cls.__pydantic_fields__ if name not in unset]
        fields = fit(self.cls, names, stored, lambda name: self._default(name, stored))
        made: Any = object.__new__(self.cls)
        setattr_ = object.__setattr__
        setattr_(made, "__dict__", fields)
        if not self.cls.__pydantic_root_model__:  # root models have neither, and no place for them
            setattr_(made, "__pydantic_extra__", self._extra(extra))
            setattr_(made, "__pydantic_private__", self._private(private))
        setattr_(made, "__pydantic_fields_set__", set(given))
        return made

    def _default(self, name: str, stored: Fields) -> Any:
        field = self.cls.__pydantic_fields__[name]
        if field.is_required():
            raise LookupError(name)
        return field.get_default(call_default_factory=True, validated_data=stored)

    def _extra(self, extra: Fields) -> Fields | None:
        if self.cls.model_config.get("extra") == "allow":
            return extra
        if extra:
            raise StoreDamaged(
                f"{self.cls.__qualname__} takes no extra values now, but {min(extra)!r} is stored. Allow them again"
            )
        return None

    def _private(self, private: Fields) -> Fields | None:
        known: Fields = self.cls.__private_attributes__
        gone = sorted(private.keys() - known.keys())
        if gone:
            raise StoreDamaged(
                f"{self.cls.__qualname__} has no private attribute {gone[0]!r} now, but it is stored. Put it back"
            )
        defaults = {name: known[name].get_default() for name in known if name not in private}
        undefined = sys.modules["pydantic_core"].PydanticUndefined
        private.update((name, default) for name, default in defaults.items() if default is not undefined)
        return private if known else None
