"""The ledger's process: `python -m perdure.testing.ledger_server FILE TOKEN`. It prints its port and serves until its standard input closes.

G1. A call is counted, and its effect applied, when their lines are on the disk (fsync); only then anything is answered or done to the caller.
G2. Whoever is killed is dead, and whoever is frozen stands still, before the ledger goes on: the order of events is exact.
G3. Only callers that know the token are heard: a request may name a process to kill.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from perdure.testing.ledger_wire import HEAD_BYTES_MAX, Count, Deed, Plan, Request, Slip, answer_bytes, request_head

_STATE_POLL_S = 0.0005


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the ledger's file."""

    book: str
    name: str
    key: str
    what: str  # arrived, called, applied, halved, probed, lost, refused; copied, to the book `key`
    value: Any = None


@dataclass(slots=True)
class _Kept:
    calls: int = 0
    applied: int = 0
    half: bool = False
    result: dict[str, Any] | None = None


@dataclass(slots=True)
class Page:
    """Everything under one name of one book."""

    sums: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    keys: dict[str, _Kept] = field(default_factory=lambda: defaultdict(_Kept))
    plans: list[Plan] = field(default_factory=list[Plan])
    dedupe: bool = True
    released: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, line: Line) -> None:
        self.sums[line.what] += 1
        kept = self.keys[line.key]
        match line.what:
            case "called":
                kept.calls += 1
            case "halved":
                kept.half = True
            case "applied":
                kept.applied += 1
                kept.half = False
                kept.result = {"number": self.sums["applied"], "value": line.value}
            case _:
                pass
        self.changed.set()

    def plan(self) -> Plan | None:
        """What is planned for the arrival that was just counted."""
        nth = self.sums["arrived"]
        return next((plan for plan in self.plans if plan.nth <= nth < plan.nth + plan.times), None)

    def count(self) -> Count:
        sums = self.sums
        return Count(
            sums["arrived"],
            sums["called"],
            sums["applied"],
            sums["halved"],
            sums["probed"],
            sums["lost"],
            sums["refused"],
        )

    def copy(self) -> Page:
        page = Page(dedupe=self.dedupe)
        page.sums.update(self.sums)
        page.keys.update(
            {key: _Kept(kept.calls, kept.applied, kept.half, kept.result) for key, kept in self.keys.items()}
        )
        return page


class Server:
    def __init__(self, file: Path, token: str) -> None:
        self._token = token
        self.pages: dict[tuple[str, str], Page] = defaultdict(Page)
        if file.exists():
            for text in file.read_bytes().splitlines():
                self._take(msgspec.json.decode(text, type=Line))
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, *lines: Line) -> None:
        os.write(self._fd, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        if any(line.what != "arrived" for line in lines):
            os.fsync(self._fd)  # G1
        for line in lines:
            self._take(line)

    def _take(self, line: Line) -> None:
        if line.what != "copied":
            self.pages[line.book, line.name].take(line)
            return
        for book, name in list(self.pages):
            if book == line.key:
                del self.pages[book, name]
        for (book, name), page in list(self.pages.items()):
            if book == line.book:
                self.pages[line.key, name] = page.copy()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            data = await self._answer(await _read(reader), reader)
            if data is not None:
                writer.write(data)
                await writer.drain()
        except (ValueError, msgspec.DecodeError) as exc:
            writer.write(answer_bytes(400, str(exc), {}))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The caller is gone.
        finally:
            writer.close()

    async def _answer(self, request: Request, reader: asyncio.StreamReader) -> bytes | None:
        _, token, book, verb, name = request.path.split("/", 4)
        if token != self._token:  # G3
            return answer_bytes(404, "no such ledger", {})
        page = self.pages[book, name]
        value: Any = msgspec.json.decode(request.body) if request.body else None
        match request.method, verb:
            case "POST", "call":
                return await self._called(request, page, book, name, value, reader)
            case "GET", "call":
                self.note(Line(book, name, request.query["key"], "probed"))
                kept = page.keys[request.query["key"]]
                return answer_bytes(200, "partial" if kept.half else kept.result if kept.applied else None, {})
            case "GET", "count":
                return answer_bytes(200, page.count(), {})
            case "GET", "slips":
                return answer_bytes(200, [Slip(key, kept.calls, kept.applied) for key, kept in page.keys.items()], {})
            case "POST", "plan":
                page.plans.append(msgspec.convert(value, Plan))
            case "POST", "dedupe":
                page.dedupe = bool(value)
            case "POST", "release":
                page.released.set()
                page.released = asyncio.Event()
            case "POST", "wait":
                what, number = msgspec.convert(value, tuple[str, int])
                return answer_bytes(200, await _until(page, what, number), {})
            case "POST", "copy":
                self.note(Line(book, "", str(value), "copied"))
            case _:
                return answer_bytes(404, "no such call", {})
        return answer_bytes(200, None, {})

    async def _called(
        self, request: Request, page: Page, book: str, name: str, value: Any, reader: asyncio.StreamReader
    ) -> bytes | None:
        key, pid = request.headers["idempotency-key"], int(request.headers.get("caller-pid", "0"))
        self.note(Line(book, name, key, "arrived"))
        plan = page.plan() or Plan(name)
        if not await _do(plan.before, pid, page, reader):
            self.note(Line(book, name, key, "lost"))
            return None
        if plan.status >= 400:
            self.note(Line(book, name, key, "called"), Line(book, name, key, "refused"))
            headers = {} if plan.retry_after is None else {"Retry-After": f"{plan.retry_after:g}"}
            return answer_bytes(plan.status, f"the ledger refuses {name}", headers)
        lines = [Line(book, name, key, "called")]
        if plan.apply == "half":
            lines.append(Line(book, name, key, "halved"))
        elif not (page.dedupe and page.keys[key].applied):
            lines.append(Line(book, name, key, "applied", value))
        self.note(*lines)
        if not await _do(plan.after, pid, page, reader):
            return None
        return answer_bytes(200, page.keys[key].result, {})


async def _read(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    request, length = request_head(head[:-4])
    return msgspec.structs.replace(request, body=await reader.readexactly(length))


async def _until(page: Page, what: str, number: int) -> int:
    while page.sums[what] < number:
        page.changed.clear()
        await page.changed.wait()
    return page.sums[what]


async def _do(deed: Deed, pid: int, page: Page, reader: asyncio.StreamReader) -> bool:
    """True if the call goes on afterwards."""
    match deed:
        case "pass":
            return True
        case "drop":
            return False
        case "kill":
            await _signal(pid, signal.SIGKILL, "ZX")
            return False
        case "freeze":
            await _signal(pid, signal.SIGSTOP, "TZX")
            return True
        case "hold":
            return await _held(page, reader)


async def _held(page: Page, reader: asyncio.StreamReader) -> bool:
    """Until released, or until the caller is gone."""
    released = asyncio.ensure_future(page.released.wait())
    gone = asyncio.ensure_future(reader.read(1))
    done, waiting = await asyncio.wait({released, gone}, return_when=asyncio.FIRST_COMPLETED)
    for waiter in waiting:
        waiter.cancel()
    await asyncio.gather(released, gone, return_exceptions=True)
    return released in done


async def _signal(pid: int, number: signal.Signals, states: str) -> None:
    """G2"""
    if pid <= 1 or pid == os.getpid():
        raise ValueError(f"process {pid} is not a caller")
    os.kill(pid, number)
    while not all(state in states for state in _states(pid)):
        await asyncio.sleep(_STATE_POLL_S)


def _states(pid: int) -> list[str]:
    """The states of all its threads; none if it is gone."""
    return [_state(task) for task in Path(f"/proc/{pid}/task").glob("*/stat")]


def _state(stat: Path) -> str:
    try:
        return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return "X"


async def main() -> None:
    ledger = Server(Path(sys.argv[1]), sys.argv[2])
    server = await asyncio.start_server(ledger.serve, "127.0.0.1", 0, limit=HEAD_BYTES_MAX, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)  # calls that are held would keep the loop waiting


if __name__ == "__main__":
    asyncio.run(main())
