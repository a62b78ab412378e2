"""What the exceptions of known HTTP and socket libraries say about the request they stand for.

X1. No library is imported: classes are known by their top-level module and name, most specific class first.
X2. `Refused` only where the request cannot have been taken (no connection was made, or the server says so);
    `Unknown` wherever it may have been. A wrong `Unknown` costs a question, a wrong `Refused` a second effect.
X3. `__cause__`, `reason` and the like are followed only out of wrappers named here, and not without end.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TypeVar, cast

_T = TypeVar("_T")


class Kind(StrEnum):
    """What is known about the outside world after an attempt that ended in an exception."""

    REFUSED = "refused"  # nothing happened, or so the step says; another attempt may help
    PERMANENT = "permanent"  # another attempt will not help
    UNKNOWN = "unknown"  # it may have happened: like a crash of that step
    ANSWER = "answer"  # not a failure: the step's result travels as an exception


# Raised before a connection exists, so before any request. Name resolution included.
_REFUSED_TYPES = (ConnectionRefusedError, socket.gaierror, socket.herror)

# A connection that existed is gone, or an answer did not come. Timeouts of asyncio and of sockets are TimeoutError.
# ConnectionError itself says only that something was lost.
_UNKNOWN_TYPES = (
    TimeoutError,
    ConnectionError,
    asyncio.CancelledError,
    asyncio.IncompleteReadError,
)

# The kernel reports a route that went away while a request was out with the same numbers as one that never was.
_UNKNOWN_ERRNOS = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ETIMEDOUT, errno.ENOTCONN}
)

_R, _P, _U = Kind.REFUSED, Kind.PERMANENT, Kind.UNKNOWN
_NAMED: Mapping[str, Mapping[str, Kind]] = {
    "http": dict.fromkeys(("IncompleteRead", "BadStatusLine", "ResponseNotReady"), _U),
    "httpx": {
        **dict.fromkeys(("ConnectTimeout", "PoolTimeout", "ConnectError", "ProxyError"), _R),
        **dict.fromkeys(("InvalidURL", "UnsupportedProtocol", "LocalProtocolError"), _P),
        **dict.fromkeys(("RemoteProtocolError", "DecodingError", "TransportError", "StreamError"), _U),
        **dict.fromkeys(("NetworkError", "ProtocolError"), _U),
    },
    "aiohttp": {
        **dict.fromkeys(("ClientConnectorError", "ConnectionTimeoutError"), _R),
        **dict.fromkeys(("InvalidURL", "NonHttpUrlClientError"), _P),
        **dict.fromkeys(("ClientConnectionError", "ClientPayloadError", "ClientResponseError"), _U),
    },
    "requests": {
        "ConnectTimeout": _R,
        **dict.fromkeys(("InvalidURL", "MissingSchema", "InvalidSchema", "InvalidHeader"), _P),
        **dict.fromkeys(("ConnectionError", "Timeout", "RetryError"), _U),
        **dict.fromkeys(("ChunkedEncodingError", "ContentDecodingError"), _U),
    },
    "urllib3": {
        **dict.fromkeys(("NewConnectionError", "NameResolutionError", "ConnectTimeoutError"), _R),
        "LocationValueError": _P,
        **dict.fromkeys(("ProtocolError", "TimeoutError", "ResponseError", "DecodeError", "SSLError"), _U),
        **dict.fromkeys(("MaxRetryError", "ProxyError"), _U),
    },
    "botocore": {
        **dict.fromkeys(("EndpointConnectionError", "ConnectTimeoutError"), _R),
        **dict.fromkeys(("HTTPClientError", "ConnectionError"), _U),
    },
    "openai": {"APIConnectionError": _U},
    "anthropic": {"APIConnectionError": _U},
    "websockets": {"InvalidHandshake": _R, "ConnectionClosed": _U},
}
_ALIASES: Mapping[str, str] = dict.fromkeys(("httpcore", "httpx2", "httpcore2"), "httpx")

# Wrappers of somebody else's failure, and where they keep it. What is inside may be more definite (X3).
_WRAPPERS: Mapping[str, Mapping[str, str]] = {
    "urllib": {"URLError": "reason"},
    "urllib3": {"MaxRetryError": "reason", "ProxyError": "original_error"},
    "requests": {"ConnectionError": "args"},
    "openai": {"APIConnectionError": "__cause__"},
    "anthropic": {"APIConnectionError": "__cause__"},
    "botocore": {"HTTPClientError": "kwargs.error"},
}
_UNWRAP_DEPTH_MAX = 8

# A library that cannot read the answer and reports that as a status of its own making.
_UNREADABLE: Mapping[str, Mapping[str, bool]] = {"aiohttp": {"HttpProcessingError": True}}

# Outside the libraries above these names still say enough.
_UNKNOWN_NAMES = frozenset({"ConnectionError", "ConnectionClosed", "ServerDisconnectedError", "RemoteProtocolError"})

# 408: the request did not arrive in whole. 425, 429, 503, 529: it was not taken up. 501, 505: it never will be.
_REFUSED_STATUSES = frozenset({408, 425, 429, 503, 529})
_PERMANENT_STATUSES = frozenset({501, 505})


def transport_kind(exc: BaseException) -> Kind | None:
    """What the transport's exception says; None if it is not known to be one."""
    return _kind(exc, _UNWRAP_DEPTH_MAX)


def status_kind(exc: BaseException) -> Kind | None:
    """What the HTTP status that the exception carries says; None without one.

    500, 502, 504 and their kind come after the server, or one on the way to it, took the request: the effect may have
    happened. So does an exception that carries a success: it was raised over the answer to a request that was served.
    """
    status = http_status(exc)
    if status is None:
        return None
    if exc.__cause__ is not None and _first_named(exc.__cause__, _UNREADABLE):
        return Kind.UNKNOWN
    if status in _REFUSED_STATUSES:
        return Kind.REFUSED
    if 400 <= status < 500 or status in _PERMANENT_STATUSES:
        return Kind.PERMANENT
    if status >= 500 or 200 <= status < 300:
        return Kind.UNKNOWN
    return None


def http_status(exc: BaseException) -> int | None:
    """The HTTP status that an exception carries, wherever the libraries keep it."""
    response = attribute(exc, "response")
    in_botocore = _member(_member(response, "ResponseMetadata"), "HTTPStatusCode")
    answered = (attribute(response, "status_code"), attribute(response, "status"), attribute(exc, "status_code"))
    for value in (*answered, in_botocore):
        if (status := _status(value, lowest=100)) is not None:
            return status
    for value in (attribute(exc, "status"), attribute(exc, "code")):
        # These two names are common elsewhere; only what looks like an HTTP failure counts.
        if (status := _status(value, lowest=400)) is not None:
            return status
    return None


def attribute(holder: object, name: str) -> object:
    """An attribute of a foreign object, or None; a property that raises is as good as absent."""
    try:
        return cast("object", getattr(holder, name, None))
    except Exception:  # noqa: BLE001 - foreign code: it must not hide the failure that is being looked at
        return None


def _status(value: object, *, lowest: int) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= 599:
        return int(value)
    return None


def _kind(exc: BaseException, depth: int) -> Kind | None:
    inner = _unwrapped(exc) if depth else None
    if inner is not None and (found := _kind(inner, depth - 1)) is not None:
        return found
    return _own_kind(exc)


def _own_kind(exc: BaseException) -> Kind | None:
    if isinstance(exc, _REFUSED_TYPES):
        return Kind.REFUSED
    if (found := _first_named(exc, _NAMED)) is not None:
        return found
    if isinstance(exc, _UNKNOWN_TYPES) or (isinstance(exc, OSError) and exc.errno in _UNKNOWN_ERRNOS):
        return Kind.UNKNOWN
    return _kind_by_name(exc)


def _kind_by_name(exc: BaseException) -> Kind | None:
    for cls in _foreign_classes(exc):
        name = cls.__name__
        if "timeout" in name.lower():
            return Kind.REFUSED if name.startswith(("ConnectTimeout", "PoolTimeout")) else Kind.UNKNOWN
        if name in _UNKNOWN_NAMES:
            return Kind.UNKNOWN
    return None


def _unwrapped(exc: BaseException) -> BaseException | None:
    path = _first_named(exc, _WRAPPERS)
    if path is None:
        return None
    value: object = exc
    for name in path.split("."):
        value = _member(value, name)
    if isinstance(value, tuple):  # requests and urllib3 pass the failure on as the first argument
        value = next(iter(cast("tuple[object, ...]", value)), None)
    return value if isinstance(value, BaseException) and value is not exc else None


def _member(holder: object, name: str) -> object:
    if isinstance(holder, Mapping):
        return cast("Mapping[str, object]", holder).get(name)
    return attribute(holder, name)


def _first_named(exc: BaseException, table: Mapping[str, Mapping[str, _T]]) -> _T | None:
    for cls in _foreign_classes(exc):
        library = cls.__module__.partition(".")[0]
        found = table.get(_ALIASES.get(library, library), {}).get(cls.__name__)
        if found is not None:
            return found
    return None


def _foreign_classes(exc: BaseException) -> Iterator[type]:
    return (cls for cls in type(exc).__mro__ if cls.__module__ != "builtins")
