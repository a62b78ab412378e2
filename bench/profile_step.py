"""Where the time of a durable step goes: µs per step and layer, for one run and for 100 runs side by side.

    python bench/profile_step.py [--steps 5000] [--runs 100] [--cpu] [--in-memory] [--asyncio] [--cprofile]

Manual spans around the functions of each layer; a span's time is its own, without the spans inside it. What a span
itself costs is measured first and subtracted. Names that are not there any more are listed, not guessed.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import functools
import gc
import importlib
import pstats
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import harness
import uvloop

from perdure import Perdure, agent, step

# Layer -> the functions that make it up, as `module:attribute path`.
LAYERS: dict[str, tuple[str, ...]] = {
    "kernel: pump": ("perdure.kernel.loop:RunLoop.pump",),
    "kernel: ask": ("perdure.kernel.activation:Activation.ask",),
    "kernel: deliver, apply": ("perdure.kernel.activation:Activation.deliver",),
    "codec: values": ("perdure.base.codec:encode", "perdure.base.codec:decode"),
    "codec: records": ("perdure.base.records:encode_record", "perdure.base.records:decode_record"),
    "worker: execution.after": ("perdure.worker.execution:Execution.after",),
    "worker: start a step": (
        "perdure.worker.effects:Effects._execute",
        "perdure.worker.effects:Effects._begin",
        "perdure.worker.effects:Effects.start_durable",
        "perdure.worker.attempt:Attempt.__init__",
    ),
    "worker: task start": ("perdure.worker.attempt:Attempt.start",),
    "worker: settle": ("perdure.worker.effects:Effects._settle", "perdure.worker.attempt:Attempt._end"),
    "worker: write, committed": (
        "perdure.worker.execution:Execution.take_write",
        "perdure.worker.execution:Execution.committed",
        "perdure.worker.writer:Writer.add",
    ),
    "store: transaction": ("perdure.store.sqlite.engine:Engine._transact",),
    "store: append": ("perdure.store.sqlite.append:append",),
    "store: crc32": ("perdure.store.sqlite.rows:record_sum",),
}
SQL_LAYERS = {"BEGIN": "sql: begin", "COMMIT": "sql: commit (write + fsync)", "INSERT": "sql: insert"}
GC = "garbage collector"
REST = "loop, tasks, step's own code, rest"


class Spans:
    """Own time and count per layer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        # Spans inside agent code read the clock too: the function below the one that refuses agents.
        self.clock: Callable[[], float] = getattr(clock, "__wrapped__", clock)
        self.own_s: dict[str, float] = {}
        self.count: dict[str, int] = {}
        self.missing: list[str] = []
        self.cost_s = 0.0
        self._inner: list[float] = [0.0]
        self._gc_started = 0.0

    def clear(self) -> None:
        self.own_s.clear()
        self.count.clear()
        self._inner[:] = [0.0]

    def wrap(self, layer: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        inner, own_s, count, clock = self._inner, self.own_s, self.count, self.clock

        @functools.wraps(fn)
        def spanned(*args: Any, **kwargs: Any) -> Any:
            inner.append(0.0)
            started = clock()
            try:
                return fn(*args, **kwargs)
            finally:
                took = clock() - started
                own_s[layer] = own_s.get(layer, 0.0) + took - inner.pop()
                count[layer] = count.get(layer, 0) + 1
                inner[-1] += took

        return spanned

    def calibrate(self) -> None:
        """What one span adds to the time around it."""

        def empty() -> None: ...

        spanned, rounds = self.wrap("calibration", empty), 200_000
        bare = min(_timed(empty, rounds, self.clock) for _ in range(3))
        with_span = min(_timed(spanned, rounds, self.clock) for _ in range(3))
        self.cost_s = (with_span - bare) / rounds
        self.clear()

    def install(self) -> None:
        for layer, names in LAYERS.items():
            for name in names:
                if not self._patch(layer, name):
                    self.missing.append(name)
        apsw.Connection = self._connection()  # type: ignore[misc]  # the store looks it up when it opens
        gc.callbacks.append(self._on_gc)

    def _on_gc(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_started = self.clock()
            return
        took = self.clock() - self._gc_started
        self.own_s[GC] = self.own_s.get(GC, 0.0) + took
        self.count[GC] = self.count.get(GC, 0) + 1
        self._inner[-1] += took  # it strikes whoever happens to allocate

    def _patch(self, layer: str, name: str) -> bool:
        module_name, _, path = name.partition(":")
        *owners, last = path.split(".")
        try:
            owner: Any = functools.reduce(getattr, owners, importlib.import_module(module_name))
            original = getattr(owner, last)
        except (ImportError, AttributeError):
            return False
        spanned = self.wrap(layer, original)
        setattr(owner, last, spanned)
        if not owners:  # a plain function: other modules imported it by name
            for module in [m for n, m in sys.modules.items() if n.startswith("perdure")]:
                for attribute in [a for a, value in vars(module).items() if value is original]:
                    setattr(module, attribute, spanned)
        return True

    def _connection(self) -> type[apsw.Connection]:
        """A connection whose statements are spans, sorted by their first word."""
        base = apsw.Connection
        spans = {word: self.wrap(layer, base.execute) for word, layer in SQL_LAYERS.items()}
        other = self.wrap("sql: select, other", base.execute)
        many = self.wrap("sql: insert", base.executemany)

        class Spanned(base):  # type: ignore[misc, valid-type]  # as above
            def execute(self, sql: str, *args: Any, **kwargs: Any) -> Any:
                return spans.get(sql.split(None, 1)[0], other)(self, sql, *args, **kwargs)

            def executemany(self, *args: Any, **kwargs: Any) -> Any:
                return many(self, *args, **kwargs)

        return Spanned


def _timed(fn: Callable[[], object], rounds: int, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(rounds):
        fn()
    return clock() - started


@step
async def touch(n: int) -> int:
    return n


@agent
async def chain(steps: int) -> int:
    for n in range(steps):
        await touch(n)
    return steps


async def measure(store: str, runs: int, steps: int, clock: Callable[[], float]) -> float:
    """Seconds per step, with everything warm."""
    async with Perdure(store) as app:
        await (await app.start(chain, 50)).result()
        started = clock()
        handles = [await app.start(chain, steps) for _ in range(runs)]
        for handle in handles:
            await handle.result()
        return (clock() - started) / (runs * steps)


def raw_floor(place: Path, rounds: int = 400) -> float:
    raw = harness.Raw(place)
    try:
        return raw.seconds(rounds)
    finally:
        raw.close()


def execute(options: argparse.Namespace, store: str, runs: int, steps: int) -> float:
    run = asyncio.run if options.asyncio else uvloop.run
    return run(measure(store, runs, steps, _clock(options)))


def _clock(options: argparse.Namespace) -> Callable[[], float]:
    return time.process_time if options.cpu else time.perf_counter


def report(title: str, spans: Spans, steps: int, plain_s: float, spanned_s: float, raw_s: float) -> None:
    print(
        f"\n{title}: {plain_s * 1e6:.1f} µs per step, {1 / plain_s:,.0f} steps/s; "
        f"raw write {raw_s * 1e6:.1f} µs, ratio {plain_s / raw_s:.2f}"
    )
    own = {
        layer: max(0.0, s - spans.count[layer] * spans.cost_s * 0.5) / steps * 1e6 for layer, s in spans.own_s.items()
    }
    total = spanned_s * 1e6
    seen = sum(spans.own_s.values()) / steps * 1e6
    own[REST] = max(0.0, total - seen - sum(spans.count.values()) / steps * spans.cost_s * 0.5 * 1e6)
    print(f"  {'layer':<38}{'µs/step':>9}{'share':>8}{'calls/step':>12}")
    whole = sum(own.values())
    for layer, us in sorted(own.items(), key=lambda item: -item[1]):
        calls = f"{spans.count[layer] / steps:.2f}" if layer in spans.count else ""
        print(f"  {layer:<38}{us:>9.2f}{us / whole:>8.0%}{calls:>12}")
    print(f"  {'sum (with spans, their cost taken off)':<38}{whole:>9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--steps", type=int, default=5000, help="steps of the one run; the many runs share four times as many"
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--asyncio", action="store_true", help="asyncio's loop instead of uvloop")
    parser.add_argument(
        "--cprofile", action="store_true", help="cProfile's view instead: the 30 functions with most time of their own"
    )
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time: on a busy machine")
    parser.add_argument("--in-memory", action="store_true", help="the store where fsync costs nothing")
    options = parser.parse_args()
    shapes = [("one run", 1, options.steps), (f"{options.runs} runs", options.runs, 4 * options.steps // options.runs)]
    with harness.folder(in_memory=options.in_memory) as place:
        if options.cprofile:
            for title, runs, steps in shapes:
                profile = cProfile.Profile()
                profile.runcall(execute, options, f"{place}/{runs}.db", runs, steps)
                print(f"\n{title}: {runs * steps} steps")
                pstats.Stats(profile).sort_stats("tottime").print_stats(30)
            return
        plain = [
            (execute(options, f"{place}/plain{runs}.db", runs, steps), raw_floor(place)) for _, runs, steps in shapes
        ]
        spans = Spans(_clock(options))
        spans.calibrate()
        spans.install()
        for (title, runs, steps), (plain_s, raw_s) in zip(shapes, plain, strict=True):
            spans.clear()
            spanned_s = execute(options, f"{place}/spans{runs}.db", runs, steps)
            report(title, spans, runs * steps, plain_s, spanned_s, raw_s)
        print(f"\none span costs {spans.cost_s * 1e6:.2f} µs. Not there: {', '.join(spans.missing) or 'nothing'}")


if __name__ == "__main__":
    main()
