"""The ledger: an effect target in a process and a file of its own, which counts what reached it and what it applied.

    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        book = ledger.book("demo")
        book.plan("publish", after="kill")      # the first caller dies when its effect is applied and not yet answered
        ...                                     # an agent's step: await Target(book.url).acall("publish", text, key=run.key)
        assert book.count("publish").applied == 1

K1. What the ledger says is not taken from the runtime under test: it counts by itself, durably, and survives its callers.
K2. A lost answer is an ordinary lost connection for the caller, so the runtime must judge it as it would any other.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import msgspec

from perdure.base.world import RealWorld
from perdure.errors import UsageError
from perdure.testing import ledger_wire
from perdure.testing.ledger_wire import Answer, Count, Deed, Plan, Slip

__all__ = ["Book", "Count", "Deed", "Ledger", "Plan", "Refused", "Slip", "Target"]

WAIT_S = 60.0


class Refused(Exception):
    """The ledger answered with an error, so nothing was applied. `status` and `retry_after` are read by the runtime as those of any HTTP library are."""

    def __init__(self, status: int, message: str, retry_after: str | None) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.retry_after = retry_after


class Target:
    """A book of the ledger as a step sees it. Calls return `{"number": n, "value": …}` of the application that the key stands for."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise UsageError(f"{url!r} is not the address of a ledger's book. Use `book.url`")
        self.url = url
        self._address = (parts.hostname, parts.port)
        self._path = parts.path

    def call(
        self, name: str, value: Any = None, *, key: str, pid: int | None = None, timeout: float | None = None
    ) -> Any:
        """Apply `name` once for `key`. `pid` is who dies if a plan says so: this process, unless said otherwise."""
        return self._send("POST", "call", name, value, self._headers(key, pid), timeout=timeout)

    async def acall(self, name: str, value: Any = None, *, key: str, pid: int | None = None) -> Any:
        return _opened(await self._asend(self._bytes("POST", "call", name, value, self._headers(key, pid))))

    def happened(self, name: str, key: str) -> Any:
        """For probes: the result if it was applied, `"partial"`, or `None`."""
        return self._send("GET", "call", name, None, {}, {"key": key})

    async def ahappened(self, name: str, key: str) -> Any:
        return _opened(await self._asend(self._bytes("GET", "call", name, None, {}, {"key": key})))

    def _headers(self, key: str, pid: int | None) -> dict[str, str]:
        return {"Idempotency-Key": key, "Caller-Pid": str(os.getpid() if pid is None else pid)}

    def _bytes(
        self,
        method: str,
        verb: str,
        name: str,
        value: Any,
        headers: dict[str, str],
        query: dict[str, str] | None = None,
    ) -> bytes:
        return ledger_wire.request_bytes(method, f"{self._path}/{verb}/{name}", query or {}, headers, value)

    def _send(
        self,
        method: str,
        verb: str,
        name: str,
        value: Any = None,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        data = bytearray()
        with socket.create_connection(self._address, timeout) as connection:
            connection.sendall(self._bytes(method, verb, name, value, headers or {}, query))
            while part := connection.recv(65536):
                data += part
        return _opened(bytes(data))

    async def _asend(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(request)
            return await reader.read(-1)
        finally:
            writer.close()


class Book(Target):
    """A book as a test sees it: plans, facts to wait for, counts. Books do not know of each other."""

    def plan(self, name: str, **how: Any) -> None:
        """See `Plan`: `book.plan("send", before="kill", nth=2)`."""
        self._send("POST", "plan", name, Plan(name, **how))

    def without_dedupe(self, name: str) -> None:
        """From now on every call of this name is applied, whatever its key: a target that knows no keys."""
        self._send("POST", "dedupe", name, value=False)

    def release(self, name: str) -> None:
        """Let the calls go on that are held."""
        self._send("POST", "release", name)

    def wait(
        self,
        name: str,
        what: Literal["arrived", "called", "applied", "halved", "probed", "lost", "refused"],
        number: int = 1,
    ) -> int:
        """Until that has happened `number` times."""
        return int(self._send("POST", "wait", name, [what, number], timeout=WAIT_S))

    def count(self, name: str) -> Count:
        return msgspec.convert(self._send("GET", "count", name), Count)

    def slips(self, name: str) -> list[Slip]:
        """The counts by key, in the order of arrival."""
        return msgspec.convert(self._send("GET", "slips", name), list[Slip])

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def copy(self, to: str) -> Book:
        """A book in which the same has happened and nothing is planned; what was in it before is forgotten."""
        self._send("POST", "copy", "", to)
        base, _, _ = self.url.rpartition("/")
        return Book(f"{base}/{to}")


class Ledger:
    """The ledger's process, for the time of a `with`."""

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self.file = Path(file)
        self._token = RealWorld().name()
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    def start(self) -> Self:
        command = [sys.executable, "-m", "perdure.testing.ledger_server", str(self.file), self._token]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.communicate()
            raise UsageError(f"the ledger did not start on {self.file}: see its message above")
        self._process, self._port = process, int(line)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def book(self, name: str) -> Book:
        return Book(f"http://127.0.0.1:{self._port}/{self._token}/{name}")


def _opened(data: bytes) -> Any:
    answer: Answer = ledger_wire.answer(data)
    if answer.status >= 400:
        raise Refused(answer.status, str(answer.json()), answer.headers.get("retry-after"))
    return answer.json()
