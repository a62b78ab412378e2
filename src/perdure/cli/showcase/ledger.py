"""The world outside, as a process of its own with a file of its own: it counts every call and everything it applied.

It applies an effect once per key, as a good payment service does, and writes that down with fsync before it answers. Told to hold something, it
applies it and never answers: that is where a worker can be killed in the middle of an effect, for certain.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ADDRESS: Final = "PERDURE_DEMO_LEDGER"
"""The environment variable that tells a worker the ledger's port."""

LINE_BYTES_MAX: Final = 4096
ANSWER_S: Final = {"ferry": 0.5, "hotel": 1.2, "weather": 0.8}
ANSWER_OTHERS_S: Final = 0.35


# What steps call


async def ask(question: str) -> str:
    """Look something up; touches nothing."""
    return str((await _call({"op": "read", "what": question}))["answer"])


async def apply(what: str, *, key: str) -> str:
    """Make something happen, once per key."""
    return str((await _call({"op": "apply", "what": what, "key": key}))["answer"])


async def hold(port: int, what: list[str]) -> None:
    """From now on these are applied and not answered."""
    await _call({"op": "hold", "what": what}, port)


async def _call(message: dict[str, Any], port: int | None = None) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port or int(os.environ[ADDRESS]))
    try:
        writer.write(json.dumps(message).encode() + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ConnectionError("the ledger closed the connection without an answer")
    answer: dict[str, Any] = json.loads(line)
    return answer


# What it counted


@dataclass(frozen=True, slots=True)
class Counts:
    """Read from the ledger's file. `applied` names each thing as often as it happened."""

    calls: int = 0
    reads: int = 0
    applied: tuple[str, ...] = ()

    @property
    def doubled(self) -> int:
        return len(self.applied) - len(set(self.applied))

    def lost(self, wanted: set[str]) -> int:
        return len(wanted - set(self.applied))


def counts(file: Path) -> Counts:
    """A last line that is still being written is left for the next look."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    entries = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    applied = tuple(entry["what"] for entry in entries if entry["op"] == "applied")
    kinds = [entry["op"] for entry in entries]
    return Counts(kinds.count("apply"), kinds.count("read"), applied)


# The process


class Ledger:
    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)
        self._keys: set[str] = set()
        self._held: list[str] = []

    async def serve(self) -> None:
        """Print the port, answer until the one who started us is gone."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=LINE_BYTES_MAX)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if line:
                await self._answer(json.loads(line), reader, writer)
        except ConnectionError:
            pass  # the caller was killed: nobody is there to answer
        finally:
            writer.close()

    async def _answer(
        self, message: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        what = message["what"]
        match message["op"]:
            case "hold":
                self._held = list(what)
                answer = "held"
            case "read":
                self._note("read", what)
                await asyncio.sleep(ANSWER_S.get(what, ANSWER_OTHERS_S))
                answer = f"{what}: fine"
            case _:
                self._apply(what, message["key"])
                if what in self._held:
                    await reader.read()  # until the caller is gone
                    return
                await asyncio.sleep(ANSWER_OTHERS_S)
                answer = f"{what}: done"
        writer.write(json.dumps({"answer": answer}).encode() + b"\n")
        await writer.drain()

    def _apply(self, what: str, key: str) -> None:
        self._note("apply", what)
        if key not in self._keys:
            self._keys.add(key)
            self._note("applied", what)

    def _note(self, kind: str, what: str) -> None:
        self._file.write(json.dumps({"op": kind, "what": what}).encode() + b"\n")
        os.fsync(self._file.fileno())


if __name__ == "__main__":
    asyncio.run(Ledger(Path(sys.argv[1])).serve())
