"""The stage on a terminal: a frame that is drawn again at every change, or plain lines where that is not possible."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Protocol, Self

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from perdure.cli.showcase.stage import PLAN, SLEEP, Stage, State

COLUMNS_MIN: Final = 76
LINES_MIN: Final = 22
WORKERS_SHOWN: Final = 4
STORY_LINES_MAX: Final = 14
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINS_PER_S: Final = 10

STYLES: Final[dict[State, str]] = {
    "ahead": "dim",
    "open": "cyan",
    "left": "bold yellow",
    "asleep": "blue",
    "recorded": "green",
}


class Screen(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, stage: Stage) -> None: ...


def screen(console: Console, *, plain: bool) -> Screen:
    utf8 = console.encoding.startswith("utf")
    small = console.width < COLUMNS_MIN or console.height < LINES_MIN
    return Lines(console) if plain or small or not utf8 or not console.is_terminal else Frame(console)


# Plain lines


class Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = 0
        self._records: set[str] = set()
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, stage: Stage) -> None:
        for row in PLAN:
            if row in stage.recorded_by and row not in self._records:
                self._records.add(row)
                done = "is over" if row == SLEEP else "is recorded"
                self._line(stage.seconds, "green", f"  {row} {done} (worker {stage.recorded_by[row]})")
        for line in stage.story[self._told :]:
            self._line(line.at_s, line.style, line.text)
        self._told = len(stage.story)
        if stage.done and not self._over:
            self._over = True
            self._console.print()
            for text in verdict(stage):
                self._console.print(text, soft_wrap=True)

    def _line(self, at_s: float, style: str, text: str) -> None:
        self._console.print(Text.assemble((f"{at_s:5.1f} s  ", "dim"), (text, style)), soft_wrap=True)


# The frame


class Frame:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, stage: Stage) -> None:
        self._live.update(frame(stage, self._console.height), refresh=True)


def frame(stage: Stage, height: int) -> RenderableType:
    head = Table.grid(expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    head.add_row(Text(" perdure demo: an agent survives kill -9", "bold"), Text(f"{stage.seconds:4.1f} s ", "dim"))
    body = Table.grid(expand=True)
    body.add_column(ratio=3)
    body.add_column(ratio=2)
    body.add_row(_run(stage), Group(_workers(stage), _ledger(stage)))
    below = [_verdict_panel(stage)] if stage.done else []
    taken = 1 + len(PLAN) + 2 + 2 + (7 if stage.done else 0) + 1
    lines = max(2, min(STORY_LINES_MAX, height - taken))
    return Group(head, body, _story(stage, lines), *below)


def _panel(content: RenderableType, title: str, style: str = "bright_black") -> Panel:
    return Panel(content, title=Text(title, "bold"), title_align="left", box=ROUNDED, border_style=style)


def _run(stage: Stage) -> Panel:
    rows = Table.grid(padding=(0, 1), expand=True)
    rows.add_column(width=1)
    rows.add_column(width=15, no_wrap=True)
    rows.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for row in PLAN:
        state = stage.state(row)
        rows.add_row(
            Text(_icon(stage, state), STYLES[state]),
            Text(row, "dim" if state == "ahead" else ""),
            Text(_what(stage, row, state), STYLES[state]),
        )
    status = stage.status or "not started"
    return _panel(rows, f"run: {status}", "green" if status == "completed" else "bright_black")


def _icon(stage: Stage, state: State) -> str:
    match state:
        case "open":
            return SPINNER[int(stage.seconds * SPINS_PER_S) % len(SPINNER)]
        case "left":
            return "!"
        case "asleep":
            return "z"
        case "recorded":
            return "✔"
        case "ahead":
            return "·"


def _what(stage: Stage, row: str, state: State) -> str:
    match state:
        case "open":
            return "applied, no answer yet" if row in stage.counts.applied else "running"
        case "left":
            return "decided, its outcome unknown"
        case "asleep":
            left = stage.sleep_left_s()
            return "" if left is None else f"{left:.1f} s left" if left else "due"
        case "recorded":
            return f"{'over' if row == SLEEP else 'recorded'}, worker {stage.recorded_by[row]}"
        case "ahead":
            return ""


def _workers(stage: Stage) -> Panel:
    rows = Table.grid(padding=(0, 1))
    for worker in stage.workers[-WORKERS_SHOWN:]:
        dead = worker.killed is not None
        rows.add_row(
            Text("✘" if dead else "●", "bold red" if dead else "green"),
            Text(f"{worker.number}"),
            Text(f"pid {worker.pid}", "dim" if dead else ""),
            Text("killed" if dead else "alive", "red" if dead else "green"),
        )
    for _ in range(WORKERS_SHOWN - len(stage.workers)):
        rows.add_row()
    return _panel(rows, "worker processes", "bright_black" if stage.alive() else "red")


def _ledger(stage: Stage) -> Panel:
    effects = stage.effects()
    rows = Table.grid(padding=(0, 1), expand=True)
    rows.add_column(ratio=1)
    rows.add_column(justify="right")
    doubled = stage.counts.doubled(effects)
    rows.add_row(Text("calls for effects"), Text(f"{stage.counts.of(effects)}"))
    rows.add_row(Text("applied"), Text(f"{len(effects & {*stage.counts.applied})}", "bold green"))
    rows.add_row(Text("doubled"), Text(f"{doubled}", "bold red" if doubled else "green"))
    return _panel(rows, "ledger, outside")


def _story(stage: Stage, lines: int) -> Panel:
    rows = Table.grid(padding=(0, 1))
    rows.add_column(width=6, justify="right")
    rows.add_column(no_wrap=True, overflow="ellipsis")
    for line in stage.story[-lines:]:
        rows.add_row(Text(f"{line.at_s:.1f} s", "dim"), Text(line.text, line.style))
    for _ in range(lines - len(stage.story)):
        rows.add_row()
    return _panel(rows, "what happens")


# The end


def verdict(stage: Stage) -> list[Text]:
    effects, reads, seen = stage.effects(), stage.reads(), stage.counts
    again = seen.of(effects) - len(effects & {*seen.calls})
    killed = sum(worker.killed is not None for worker in stage.workers)
    lost, doubled = seen.lost(effects), seen.doubled(effects)
    lines = [
        Text("nothing lost, nothing doubled" if stage.good() else "SOMETHING IS WRONG", _good(stage)),
        Text(f"{killed} workers killed with SIGKILL, {len(stage.workers)} started; {stage.seconds:.1f} s"),
        Text(
            f"effects: {len(effects)} decided, {len(effects & {*seen.applied})} applied, {lost} lost, {doubled} doubled"
        ),
        Text(f"calls: {seen.of(effects)}; {again} came again after a kill, with the same key, and changed nothing"),
        Text(f"look-ups: {len(reads)} decided, {seen.of(reads)} made; what is recorded is not asked again"),
    ]
    if doubled:
        lines[3] = Text(f"calls: {seen.of(effects)}; {again} came again after a kill")
    return lines


def _good(stage: Stage) -> str:
    return "bold green" if stage.good() else "bold red"


def _verdict_panel(stage: Stage) -> Panel:
    title, *lines = verdict(stage)
    return _panel(Group(*lines), title.plain, _good(stage))
