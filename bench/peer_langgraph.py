"""The same work on LangGraph, its SQLite saver, `durability="sync"`: a step is a node, its record a checkpoint."""

from __future__ import annotations

import os
import time
from typing import Any, TypedDict

import harness
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    n: int
    steps: int
    leaves: bool


def touch(state: State) -> dict[str, int]:
    return {"n": state["n"] + 1}


def leave(state: State) -> dict[str, int]:
    if "BENCH_RESUMED" in os.environ:
        harness.answer(time.monotonic() - float(os.environ["BENCH_RESUMED"]))
    os._exit(0)


def after(state: State) -> str:
    if state["n"] < state["steps"]:
        return "touch"
    return "leave" if state["leaves"] else END


def graph(saver: SqliteSaver) -> Any:
    made = StateGraph(State)
    made.add_node("touch", touch)
    made.add_node("leave", leave)
    made.add_edge(START, "touch")
    made.add_conditional_edges("touch", after, ["touch", "leave", END])
    made.add_edge("leave", END)
    return made.compile(checkpointer=saver)


def invoke(app: Any, thread: str, state: State | None, steps: int) -> None:
    settings = {"configurable": {"thread_id": thread}, "recursion_limit": steps + 10}
    app.invoke(state, settings, durability="sync")


def sequential(place: str, steps: int) -> Any:
    with SqliteSaver.from_conn_string(f"{place}/langgraph.db") as saver:
        app = graph(saver)
        invoke(app, "warm", State(n=0, steps=20, leaves=False), 20)
        started = time.perf_counter()
        invoke(app, "long", State(n=0, steps=steps, leaves=False), steps)
        return (time.perf_counter() - started) / steps


def one_after_another(place: str, count: int) -> Any:
    """It has no run without a node: one node is the least."""
    taken: list[float] = []
    with SqliteSaver.from_conn_string(f"{place}/langgraph-noop.db") as saver:
        app = graph(saver)
        for number in range(count + 10):
            started = time.perf_counter()
            invoke(app, str(number), State(n=0, steps=1, leaves=False), 1)
            if number >= 10:
                taken.append(time.perf_counter() - started)
    return taken


def write_journal(store: str, steps: int) -> None:
    with SqliteSaver.from_conn_string(store) as saver:
        invoke(graph(saver), "long", State(n=0, steps=steps, leaves=True), steps)


def go_on(store: str) -> None:
    """It loads the last checkpoint and enters the node that was left; `leave` answers."""
    os.environ["BENCH_RESUMED"] = repr(time.monotonic())
    with SqliteSaver.from_conn_string(store) as saver:
        invoke(graph(saver), "long", None, 10)


if __name__ == "__main__":
    harness.serve(
        {
            "sequential": sequential,
            "one_after_another": one_after_another,
            "write_journal": write_journal,
            "go_on": go_on,
        }
    )
