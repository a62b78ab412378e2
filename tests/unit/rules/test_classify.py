"""What an exception says about the world outside."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import http.client
import queue
import socket
import subprocess
import tarfile
import urllib.error
from email.message import Message
from types import SimpleNamespace

import pytest

from perdure import errors
from perdure.base.records import ErrorData
from perdure.rules.classify import Kind, classify, known_kind
from perdure.rules.step_endings import ChildDied, ChildError, StepEscaped, as_failure

R, P, U, A = Kind.REFUSED, Kind.PERMANENT, Kind.UNKNOWN, Kind.ANSWER


def library(module: str, *names: str, root: type[Exception] = Exception) -> type[Exception]:
    """An exception class as a library would define it: `names` from the most specific to the most general."""
    cls: type[Exception] = root
    for name in reversed(names):
        cls = type(name, (cls,), {"__module__": module})
    return cls


def http_error(status: int) -> Exception:
    exc = Exception(f"HTTP {status}")
    exc.response = SimpleNamespace(status_code=status)  # type: ignore[attr-defined]
    return exc


class NotFoundError(Exception):
    status_code = 404


class GoodAnswer(errors.Outcome):
    """An answer."""


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (TimeoutError(), U),
        (concurrent.futures.TimeoutError(), U),
        (TimeoutError("timed out"), U),
        (subprocess.TimeoutExpired("cc", 3), U),
        (asyncio.CancelledError(), U),
        (concurrent.futures.CancelledError(), R),
        (ConnectionResetError(), U),
        (BrokenPipeError(), U),
        (ConnectionAbortedError(), U),
        (ConnectionError("lost"), U),
        (OSError(errno.EHOSTUNREACH, "no route"), U),
        (OSError(errno.ETIMEDOUT, "timed out"), U),
        (asyncio.IncompleteReadError(b"", 3), U),
        (http.client.RemoteDisconnected(), U),
        (http.client.IncompleteRead(b""), U),
        (http.client.BadStatusLine("?"), U),
        (ConnectionRefusedError(), R),
        (socket.gaierror(socket.EAI_NONAME, "unknown host"), R),
        (ChildDied(), U),
        (errors.InDoubt(), U),
        (errors.LeaseLost(), U),
        (errors.Permanent(), P),
        (errors.UsageError(), P),
        (errors.NotStorable("a lock"), P),
        (errors.PayloadTooLarge(), P),
        (errors.RetryLater(), R),
        (errors.StoreUnavailable(), R),
        (errors.Outcome(), A),
        (GoodAnswer(), A),
        (TypeError(), P),
        (NameError(), P),
        (UnboundLocalError(), P),
        (AttributeError(), P),
        (ModuleNotFoundError(), P),
        (SyntaxError(), P),
        (NotImplementedError(), P),
        (AssertionError(), P),
        (ValueError(), R),
        (RuntimeError(), R),
        (KeyError("x"), R),
        (OSError(errno.ENOSPC, "disk full"), R),
        (FileNotFoundError(), R),
        (queue.Empty(), R),
        (tarfile.ReadError(), R),
        (SystemExit(3), R),
    ],
)
def test_exceptions_of_python_and_of_perdure(exc: BaseException, kind: Kind) -> None:
    """Lost after it was sent: unknown. Never sent: refused. A mistake in the code: permanent. All else: refused."""
    assert classify(exc) is kind


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (library("httpx", "ConnectTimeout", "TimeoutException", "TransportError")(), R),
        (library("httpx", "PoolTimeout", "TimeoutException", "TransportError")(), R),
        (library("httpx", "ConnectError", "NetworkError", "TransportError")(), R),
        (library("httpx", "ReadTimeout", "TimeoutException", "TransportError")(), U),
        (library("httpx", "WriteTimeout", "TimeoutException", "TransportError")(), U),
        (library("httpx", "ReadError", "NetworkError", "TransportError")(), U),
        (library("httpx", "WriteError", "NetworkError", "TransportError")(), U),
        (library("httpx", "RemoteProtocolError", "ProtocolError", "TransportError")(), U),
        (library("httpx", "LocalProtocolError", "ProtocolError", "TransportError")(), P),
        (library("httpx", "UnsupportedProtocol", "TransportError")(), P),
        (library("httpcore._exceptions", "ConnectError", "NetworkError")(), R),
        (library("httpcore._exceptions", "ReadTimeout", "TimeoutException")(), U),
        (library("httpx2", "ConnectError", "NetworkError", "TransportError")(), R),
        (library("httpx2", "ReadError", "NetworkError", "TransportError")(), U),
        (library("httpcore2", "ReadError", "NetworkError")(), U),
        (library("aiohttp.client_exceptions", "NonHttpUrlClientError", "ClientError")(), P),
        (library("aiohttp.client_exceptions", "ClientConnectorError", "ClientOSError", "ClientConnectionError")(), R),
        (library("aiohttp.client_exceptions", "ClientConnectorDNSError", "ClientConnectorError")(), R),
        (library("aiohttp.client_exceptions", "ClientOSError", "ClientConnectionError", root=OSError)(), U),
        (library("aiohttp.client_exceptions", "ServerDisconnectedError", "ClientConnectionError")(), U),
        (library("aiohttp.client_exceptions", "ServerTimeoutError", root=TimeoutError)(), U),
        (library("aiohttp.client_exceptions", "ConnectionTimeoutError", "ServerTimeoutError", root=TimeoutError)(), R),
        (library("aiohttp.client_exceptions", "ClientPayloadError")(), U),
        (library("requests.exceptions", "ConnectTimeout", "ConnectionError", "RequestException", root=OSError)(), R),
        (library("requests.exceptions", "ReadTimeout", "Timeout", "RequestException", root=OSError)(), U),
        (library("requests.exceptions", "ChunkedEncodingError", "RequestException", root=OSError)(), U),
        (library("requests.exceptions", "ConnectionError", "RequestException", root=OSError)("lost"), U),
        (library("requests.exceptions", "MissingSchema", "RequestException", root=ValueError)(), P),
        (library("urllib3.exceptions", "NewConnectionError", "HTTPError")(), R),
        (library("urllib3.exceptions", "ConnectTimeoutError", "TimeoutError", "HTTPError")(), R),
        (library("urllib3.exceptions", "ReadTimeoutError", "TimeoutError", "HTTPError")(), U),
        (library("urllib3.exceptions", "ProtocolError", "HTTPError")(), U),
        (library("anything", "StoreReadTimeout")(), U),
        (library("anything", "PayTimeoutError")(), U),
        (library("anything", "ConnectTimeout")(), R),
        (library("redis.exceptions", "ConnectionError", "RedisError")(), U),
        (library("anything", "ReadError")(), R),
    ],
)
def test_exceptions_of_libraries_are_known_by_name(exc: Exception, kind: Kind) -> None:
    """No library is imported: module, name and bases are enough."""
    assert classify(exc) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, P), (401, P), (403, P), (404, P), (408, R), (409, P), (422, P), (425, R), (429, R),
        (500, U), (501, P), (502, U), (503, R), (504, U), (505, P), (520, U), (524, U), (529, R),
        (200, U), (201, U), (302, R),
    ],
)  # fmt: skip
def test_http_statuses(status: int, kind: Kind) -> None:
    """A server that failed after it took the request leaves the outcome open; one that did not take it does not."""
    assert classify(http_error(status)) is kind


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"response": SimpleNamespace(status_code=429)}, R),
        ({"response": SimpleNamespace(status=503)}, R),
        ({"response": {"ResponseMetadata": {"HTTPStatusCode": 500}}}, U),
        ({"response": {"ResponseMetadata": None}}, R),
        ({"status_code": 404}, P),
        ({"status": 502}, U),
        ({"code": 400}, P),
        ({"code": 1006}, R),
        ({"code": 200}, R),
        ({"code": "404"}, R),
        ({"code": lambda: 404}, R),
        ({"status": True}, R),
        ({"response": None, "status_code": None}, R),
    ],
)
def test_a_status_is_found_where_libraries_keep_it(attributes: dict[str, object], kind: Kind) -> None:
    """By attribute names alone; what does not look like a status is ignored."""
    exc = Exception("failed")
    for name, value in attributes.items():
        setattr(exc, name, value)
    assert classify(exc) is kind


def test_a_response_that_is_falsy_still_has_a_status() -> None:
    """`requests` responses are false when they carry an error."""

    class Response:
        status_code = 404

        def __bool__(self) -> bool:
            return False

    exc = Exception("failed")
    exc.response = Response()  # type: ignore[attr-defined]
    assert classify(exc) is P


def test_an_answer_that_cannot_be_read_is_no_refusal() -> None:
    """`aiohttp` reports garbage as a status 400 that no server has sent; the request was taken all the same."""
    exc = library("aiohttp.client_exceptions", "ClientResponseError", "ClientError")("bad message")
    exc.status = 400  # type: ignore[attr-defined]
    assert classify(exc) is P
    exc.__cause__ = library("aiohttp.http_exceptions", "BadStatusLine", "BadHttpMessage", "HttpProcessingError")()
    assert classify(exc) is U


def test_url_errors_are_unwrapped() -> None:
    """`urllib` hides the reason; a refused connect is refused, a reset one is unknown."""
    assert classify(urllib.error.URLError(ConnectionRefusedError())) is R
    assert classify(urllib.error.URLError(socket.gaierror(-2, "unknown host"))) is R
    assert classify(urllib.error.URLError(TimeoutError())) is U
    assert classify(urllib.error.URLError(ConnectionResetError())) is U
    assert classify(urllib.error.URLError("unknown url type: x")) is R
    with urllib.error.HTTPError("http://localhost", 504, "gateway", Message(), None) as exc:
        assert classify(exc) is U


def test_a_requests_connection_error_is_as_definite_as_its_cause() -> None:
    """A connect that was refused is no lost connection, though `requests` calls both the same."""
    connection_error = library("requests.exceptions", "ConnectionError", "RequestException", root=OSError)
    retries = library("urllib3.exceptions", "MaxRetryError", "HTTPError")("max retries")
    retries.reason = library("urllib3.exceptions", "NewConnectionError", "HTTPError")()  # type: ignore[attr-defined]
    assert classify(connection_error(retries)) is R
    retries.reason = library("urllib3.exceptions", "ReadTimeoutError", "HTTPError")()  # type: ignore[attr-defined]
    assert classify(connection_error(retries)) is U
    assert classify(connection_error(library("urllib3.exceptions", "ProtocolError")("aborted"))) is U
    assert classify(connection_error()) is U


def test_a_cause_counts_only_under_a_known_wrapper() -> None:
    """A model client's connection error says what its cause says; a user's own exception speaks for itself."""
    wrapped = library("openai", "APIConnectionError", "APIError")("connection error")
    wrapped.__cause__ = library("httpx", "ConnectError")()
    assert classify(wrapped) is R
    own = RuntimeError("could not send")
    own.__cause__ = TimeoutError()
    assert classify(own) is R


def test_wrappers_in_a_circle_come_to_an_end() -> None:
    """A cause that is its own cause is as unknown as its wrapper."""
    first = library("openai", "APIConnectionError")("a")
    second = library("openai", "APIConnectionError")("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first) is U


def test_declared_exceptions_are_answers() -> None:
    """What a step names in `raises=` is never retried."""
    assert classify(ValueError(), (ValueError,)) is A
    assert classify(AssertionError(), (AssertionError,)) is A
    assert classify(NotFoundError(), (NotFoundError,)) is A
    assert classify(NotFoundError()) is P


def test_declaring_an_exception_does_not_make_an_unknown_outcome_known() -> None:
    """A timeout stays a timeout."""
    assert classify(TimeoutError(), (TimeoutError,)) is U
    assert classify(ConnectionRefusedError(), (OSError,)) is R


def test_permanent_says_more_than_its_status() -> None:
    """A step that raises `Permanent` has looked; its word stands."""

    class GivenUpError(errors.Permanent):
        status_code = 500

    assert classify(GivenUpError()) is P


def test_the_worst_of_a_group_decides() -> None:
    """One member with an unknown outcome makes the outcome of all unknown."""
    assert classify(ExceptionGroup("", [ValueError(), ExceptionGroup("", [TimeoutError()])])) is U
    assert classify(ExceptionGroup("", [ValueError(), TypeError()])) is P
    assert classify(ExceptionGroup("", [ValueError(), errors.Outcome()])) is R
    assert classify(ExceptionGroup("", [errors.Outcome(), KeyError()]), (KeyError,)) is A


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
def test_what_is_no_exception_becomes_one(raised: BaseException) -> None:
    """It can be raised into a task, keeps its cause, and is classified by it."""
    failure = as_failure(raised)
    assert isinstance(failure, StepEscaped)
    assert failure.__cause__ is raised
    assert type(raised).__name__ in str(failure)
    assert classify(failure) is (U if isinstance(raised, asyncio.CancelledError) else R)


def test_stop_iteration_cannot_travel_through_a_future() -> None:
    """It would end the coroutine that awaits it."""
    assert isinstance(as_failure(StopIteration(3)), StepEscaped)


def test_an_ordinary_exception_stays_itself() -> None:
    """Nothing is wrapped that need not be."""
    exc = ValueError()
    assert as_failure(exc) is exc


def test_a_failure_in_a_child_keeps_its_kind() -> None:
    """The child classified it where the exception was; the parent adds what the step declares."""
    assert classify(ChildError(ErrorData("ReadTimeout", "slow"), kind="unknown")) is U
    assert classify(ChildError(ErrorData("ValueError", "bad"))) is R
    declared = ChildError(ErrorData("ValueError", "bad"), bases=("builtins:ValueError", "builtins:Exception"))
    assert classify(declared, (ValueError,)) is A
    assert classify(declared, (KeyError,)) is R
    late = ChildError(ErrorData("TimeoutError", ""), kind="unknown", bases=("builtins:TimeoutError",))
    assert classify(late, (TimeoutError,)) is U


def test_a_class_of_a_script_is_matched_by_its_name() -> None:
    """The script is `__main__` here and has its file's name in the child."""
    mine = type("MineError", (Exception,), {"__module__": "__main__"})
    assert classify(ChildError(ErrorData("MineError", ""), bases=("script:MineError",)), (mine,)) is A


def test_known_kind_says_nothing_about_what_nobody_knows() -> None:
    """So that a declaration on the other side of a process boundary can still decide."""
    assert known_kind(ValueError()) is None
    assert known_kind(TimeoutError()) is U
