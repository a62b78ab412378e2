"""Short agents for processes that are really killed. Every effect writes its key into a file that outlives them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from perdure import agent, run, step


def _write(book: str, tag: Any) -> None:
    file = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{run.key} {tag}\n".encode())
    finally:
        os.close(file)


@step
async def put(book: str, tag: Any) -> Any:
    _write(book, tag)
    await asyncio.sleep(0.002)
    return tag


@step
def put_in_thread(book: str, tag: Any) -> Any:
    _write(book, tag)
    return tag


@step(effect="read")
async def look(tag: Any) -> Any:
    await asyncio.sleep(0.001)
    return tag


@agent
async def quick_gather(book: str) -> Any:
    async def branch(n: int) -> Any:
        await asyncio.sleep(0.01 * (3 - n))
        return [await put(book, n), await look(n), await put_in_thread(book, f"{n} again")]

    return await asyncio.gather(*(branch(n) for n in range(3)))


@agent
async def quick_group(book: str) -> Any:
    async def fails() -> None:
        await put(book, "before the failure")
        raise ValueError("no")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            group.create_task(fails())
    except* ValueError:
        await put(book, "caught")
    return await put(book, "end")


@agent
async def quick_race(book: str) -> Any:
    won: list[Any] = []
    for n in range(3):
        tasks = [asyncio.create_task(put(book, f"left {n}")), asyncio.create_task(asyncio.sleep(0.004, "timer"))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(tasks)
        won.append(len(done) > 0)
        await put(book, f"after {n}")
    return won


@agent
async def quick_timeout(book: str) -> Any:
    seen: list[Any] = []
    for n in range(3):
        try:
            async with asyncio.timeout(0.005):
                await asyncio.sleep(30)
        except TimeoutError:
            seen.append(await put(book, f"timeout {n}"))
    return seen


@agent
async def quick_queue(book: str) -> Any:
    jobs: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
    taken: list[int] = []

    async def consumer() -> None:
        while True:
            taken.append(await put(book, await jobs.get()))
            jobs.task_done()

    consumers = [asyncio.create_task(consumer()) for _ in range(2)]
    for n in range(5):
        await jobs.put(n)
    await jobs.join()
    for task in consumers:
        task.cancel()
    await asyncio.wait(consumers)
    return sorted(taken)


@agent
async def quick_generator(book: str) -> Any:
    async def numbers() -> AsyncIterator[Any]:
        try:
            for n in range(3):
                yield await look(n)
        finally:
            await put(book, "closed")

    total = 0
    async for n in numbers():
        total += await put(book, n)
    return total


@agent
async def quick_lock(book: str) -> Any:
    lock, order = asyncio.Lock(), []

    async def worker(n: int) -> None:
        async with lock:
            await put(book, f"{n} in")
            await asyncio.sleep(0.003)
            await put_in_thread(book, f"{n} out")
            order.append(n)

    await asyncio.gather(*(worker(n) for n in range(3)))
    return order


@agent
async def quick_completed(book: str) -> Any:
    seen = [await done for done in asyncio.as_completed([put(book, n) for n in range(4)])]
    try:
        await asyncio.wait_for(asyncio.shield(asyncio.sleep(20)), 0.005)
    except TimeoutError:
        seen.append(await put(book, 4))
    return sorted(seen)
