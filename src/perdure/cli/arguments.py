"""JSON from the command line to an agent's arguments, checked against its signature before anything is stored."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import typing
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from perdure.base import codec
from perdure.errors import UsageError
from perdure.kernel.spec import AgentSpec

_NAMED: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class Call(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def bind(agent: AgentSpec, words: Sequence[str]) -> Call:
    """`JSON` words are positional, `name=JSON` words are keywords."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for number, word in enumerate(words, start=1):
        named = _NAMED.fullmatch(word)
        if named is None:
            args.append(parse(word, f"argument {number}"))
        elif named[1] in kwargs:
            raise UsageError(f"argument {named[1]!r} is given twice. Give it once")
        else:
            kwargs[named[1]] = parse(named[2], f"argument {named[1]!r}", prefix=f"{named[1]}=")
    return _typed(agent, args, kwargs)


def parse(text: str, what: str, *, prefix: str = "") -> Any:
    """JSON with the place of the first mistake, and for bare text how it is quoted."""
    try:
        return json.loads(text, parse_constant=lambda word: _no_constant(word, what))
    except json.JSONDecodeError as exc:
        start = max(0, exc.pos - 20)
        near = text[start : exc.pos + 20]
        place = f"line {exc.lineno}, character {exc.colno}" if "\n" in text else f"character {exc.colno}"
        raise UsageError(f"{what} is not JSON: {exc.msg} at {place}, near {near!r}. {_advice(text, prefix)}") from exc
    except ValueError as exc:
        raise UsageError(f"{what} cannot be read: {exc}. Pass so long a number as text") from exc
    except RecursionError as exc:
        raise UsageError(f"{what} is nested too deeply") from exc


def _no_constant(word: str, what: str) -> NoReturn:
    raise UsageError(f"{what} is not JSON: {word} is no JSON number. Pass it as text, or as null")


def _advice(text: str, prefix: str) -> str:
    if text.strip()[:1] in ("{", "["):
        return 'Write names and texts in double quotes, and the whole in single quotes: \'{"name": "text"}\''
    if text in ("True", "False", "None"):
        return f"JSON writes it {prefix}{ {'True': 'true', 'False': 'false', 'None': 'null'}[text] }"
    if text.strip()[:1] == '"' and text.strip()[-1:] == '"' and len(text.strip()) > 1:
        return 'Inside a text, write \\" for a quote and \\\\ for a backslash'
    quoted = json.dumps(text.strip('"'), ensure_ascii=False)
    return f"For text write {shlex.quote(prefix + quoted)}"


def _typed(agent: AgentSpec, args: list[Any], kwargs: dict[str, Any]) -> Call:
    signature = inspect.signature(agent.fn)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as exc:
        raise UsageError(f"{agent.name}: {exc}. It takes {agent.name}{_readable(signature)}") from exc
    hints = _hints(agent)
    for name, value in bound.arguments.items():
        annotation = hints.get(name, Any)
        match signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(_convert(item, annotation, name) for item in value)
            case inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: _convert(item, annotation, key) for key, item in value.items()}
            case _:
                bound.arguments[name] = _convert(value, annotation, name)
    return Call(bound.args, bound.kwargs)


def _convert(value: Any, annotation: Any, name: str) -> Any:
    try:
        return codec.convert(value, annotation)
    except UsageError as exc:
        raise UsageError(f"argument {name!r}: {exc}") from exc


def _hints(agent: AgentSpec) -> dict[str, Any]:
    try:
        return typing.get_type_hints(agent.fn)
    except Exception:  # noqa: BLE001  # names that exist for type checkers only: then values stay as JSON gives them
        return {}


def _readable(signature: inspect.Signature) -> str:
    return str(signature).partition(" -> ")[0].replace("'", "")
