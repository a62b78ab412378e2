"""A process that uses every verb of the store and says what was acknowledged, one JSON line each.

Arguments: path, prefix of the ids, what to do (`all`, `create` or `stubborn`). PERDURE_FAULTS may kill it anywhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from perdure.base.records import Executed, encode_record
from perdure.base.status import ControlKind, Reason, Status
from perdure.base.world import RealWorld
from perdure.errors import StoreUnavailable
from perdure.store.contract import NewRun, RunChange, RunWrite, Verdict, WorkerInfo
from perdure.store.open import open_store


def say(*words: object) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def record(n: int, size: int = 10) -> bytes:
    return encode_record(Executed(1.0, position=n, attempt=1, result=bytes(size)))


async def work(store, prefix: str) -> None:
    info = WorkerInfo(prefix, "host", 1, 2, {"a": "v2"}, ["m"])
    worker = await store.register(info, ttl_s=1_000)
    say("registered", worker)
    await store.renew(worker, ttl_s=1_000)
    held = []
    for n in range(3):
        made, _ = await store.create(NewRun(f"{prefix}-held-{n}", "a", "m", b"i" * 2_000), worker=worker)
        held.append(made.run)
        say("created", made.run.id)
    made, _ = await store.create(NewRun(f"{prefix}-free", "a", "m", b"input"))
    say("created", made.run.id)
    await store.create(NewRun(f"{prefix}-orphan", "gone", "m", b"input"))
    for claimed in await store.claim(worker, ["a"], limit=100):
        say("claimed", claimed.run.id, claimed.run.epoch)
    for n in range(1, 8):
        writes = [RunWrite(run.num, run.epoch, 2 * n - 1, [record(2 * n - 1), record(2 * n)]) for run in held]
        assert (await store.append(worker, writes)).verdicts == [Verdict.DONE] * 3
        for run in held:
            say("appended", run.num, 2 * n)
    big = RunWrite(held[0].num, held[0].epoch, 15, [record(15, 5_000_000)])
    await store.append(worker, [big])
    say("appended", held[0].num, 15)
    await store.checkpoint()
    say("checkpoint")
    await store.control(held[1].id, ControlKind.PAUSE, body=b"", by="me")
    say("asked", held[1].id)
    park = RunChange(Status.PARKED, reason=Reason.DIVERGED, code="v1", release=True)
    await store.append(worker, [RunWrite(held[2].num, held[2].epoch, 15, [record(15)], park)])
    say("appended", held[2].num, 15)
    assert await store.readmit({"a": "v2"}) >= 1
    say("readmitted", held[2].id)
    assert f"{prefix}-orphan" in await store.park_orphans(["a"], ["m"])
    other = await store.register(WorkerInfo("other", "host", 1, 2, {}, []), ttl_s=1_000)
    await store.create(NewRun(f"{prefix}-buried", "a", "m", b""), worker=other)
    await store.bury(other, dead=True)
    say("buried", other)
    await store.retire(worker)
    say("retired", worker)


async def stubborn(store, prefix: str) -> None:
    """Twenty appends, each repeated until it is acknowledged."""
    worker = await again(lambda: store.register(WorkerInfo(prefix, "host", 1, 2, {}, []), ttl_s=1e6))
    made, _ = await again(lambda: store.create(NewRun(prefix, "a", "m", b""), worker=worker))
    if made.run.worker is None:
        raise SystemExit("the run was not taken")
    for n in range(1, 21):
        write = RunWrite(made.run.num, made.run.epoch, n, [record(n, 6_000)])
        appended = await again(lambda write=write: store.append(worker, [write]))
        assert appended.verdicts == [Verdict.DONE], appended
        say("appended", made.run.num, n)


async def again(verb):
    for _ in range(100):
        try:
            return await verb()
        except StoreUnavailable as exc:
            say("unavailable", str(exc))
    raise SystemExit("the store does not come back")


async def main() -> None:
    path, prefix, what = sys.argv[1:]
    store = open_store(path, RealWorld())
    if what == "stubborn":
        await again(lambda: store.open(worker=True))
        await stubborn(store, prefix)
        await again(store.close)
        return
    await store.open(worker=what == "all")
    say("open")
    if what == "all":
        await work(store, prefix)
    else:
        _, added = await store.create(NewRun("the-one", "a", "m", prefix.encode()))
        say("added", added)
    await store.close()
    say("closed")


if __name__ == "__main__":
    asyncio.run(main())
