"""What travels to and from the ledger: plain HTTP/1.1, one request per connection, so that any client may call it.

W1. Nothing is trusted about lengths: head and body have limits, and what is cut off is an error.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

HEAD_BYTES_MAX: Final = 16 * 1024
BODY_BYTES_MAX: Final = 1024 * 1024

Deed: TypeAlias = Literal["pass", "kill", "freeze", "hold", "drop"]
"""What is done to a call: nothing, SIGKILL or SIGSTOP to the caller, hold it until released, close the connection without an answer."""


class Plan(msgspec.Struct, frozen=True):
    """How calls of one name are met, from the `nth` arrival on, for `times` arrivals.

    `before` happens when the request is there but neither counted nor applied, `after` when it is applied but not answered. With a `status` of 400 or
    more nothing is applied, and that is the answer.
    """

    name: str
    before: Deed = "pass"
    apply: Literal["full", "half"] = "full"
    after: Deed = "pass"
    status: int = 200
    retry_after: float | None = None
    nth: int = 1
    times: int = 1


class Count(msgspec.Struct, frozen=True):
    """What the ledger saw under one name. `calls` are requests that reached it; `lost` ones were stopped before."""

    arrived: int = 0
    calls: int = 0
    applied: int = 0
    halves: int = 0
    probes: int = 0
    lost: int = 0
    refused: int = 0


class Slip(msgspec.Struct, frozen=True):
    """The same for one key."""

    key: str
    calls: int
    applied: int


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body) if self.body else None


def request_bytes(method: str, path: str, query: dict[str, str], headers: dict[str, str], value: Any) -> bytes:
    body = msgspec.json.encode(value)
    target = quote(path) + (f"?{urlencode(query)}" if query else "")
    lines = [f"{method} {target} HTTP/1.1", "Host: ledger", "Connection: close", f"Content-Length: {len(body)}"]
    return _message(lines, headers, body)


def answer_bytes(status: int, value: Any, headers: dict[str, str]) -> bytes:
    body = msgspec.json.encode(value)
    return _message(
        [f"HTTP/1.1 {status} -", "Connection: close", "Content-Type: application/json", f"Content-Length: {len(body)}"],
        headers,
        body,
    )


def _message(lines: list[str], headers: dict[str, str], body: bytes) -> bytes:
    text = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items())])
    return text.encode("latin-1", "replace") + b"\r\n\r\n" + body


def request_head(head: bytes) -> tuple[Request, int]:
    """The request without its body, and the body's length."""
    first, headers, length = _head(head)
    words = first.split(" ")
    if len(words) != 3:
        raise ValueError("not a request")
    parts = urlsplit(words[1])
    return Request(words[0], unquote(parts.path), dict(parse_qsl(parts.query)), headers, b""), length


def answer(data: bytes) -> Answer:
    """A whole answer; `ConnectionResetError` if the end is missing: then nobody knows what became of the request."""
    head, mark, body = data.partition(b"\r\n\r\n")
    if not mark:
        raise ConnectionResetError("the ledger closed the connection without an answer")
    first, headers, length = _head(head)
    if len(body) != length:
        raise ConnectionResetError("the ledger closed the connection in the middle of its answer")
    return Answer(int(first.split(" ")[1]), headers, body)


def _head(head: bytes) -> tuple[str, dict[str, str], int]:
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= BODY_BYTES_MAX:
        raise ValueError("the body is too long")
    return first, headers, length
