"""Agents that use asyncio as it is: one primitive each. They run on perdure's loop and, the very same functions,
on a plain one."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from asyncio import as_completed as completed_by_name
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from perdure import agent, step

AGENTS: dict[str, Any] = {}


@step
async def work(tag: Any, seconds: float = 0.01) -> Any:
    await asyncio.sleep(seconds)
    return tag


@step(effect="read")
async def look(tag: Any, seconds: float = 0.01) -> Any:
    await asyncio.sleep(seconds)
    return tag


@step(effect="once")
async def send(tag: Any, seconds: float = 0.01) -> Any:
    await asyncio.sleep(seconds)
    return tag


@step(raises=(ValueError, KeyError))
async def fail(tag: Any, seconds: float = 0.01) -> Any:
    await asyncio.sleep(seconds)
    raise ValueError(tag)


def _fail(tag: Any, seconds: float = 0.01) -> Any:
    raise ValueError(tag)


SCRIPTED = {name: lambda tag, seconds=0.01: tag for name in ("work", "look", "send")} | {"fail": _fail}


def seconds_of(tag: Any, seconds: float = 0.01) -> float:
    return seconds


def example(function: Any) -> Any:
    @functools.wraps(function)
    async def example() -> Any:
        result = await function()
        return list(result) if isinstance(result, Log) else result

    AGENTS[function.__name__] = agent(name=f"prim_{function.__name__}")(example)
    return AGENTS[function.__name__]


class Log(list[Any]):
    """What happened, and when; the last one can be looked at after its run was cancelled."""

    last: ClassVar[Log]

    def __init__(self) -> None:
        super().__init__()
        Log.last = self

    def __call__(self, *what: Any) -> None:
        elapsed = round(asyncio.get_running_loop().time() - 1_000.0, 3)
        self.append([*what, elapsed])


async def branch(log: Log, tag: str, seconds: float, then: float = 0.013) -> str:
    log("start", tag)
    try:
        first = await work(tag, seconds)
        await asyncio.sleep(then)
        second = await look(tag + "!", then)
    except asyncio.CancelledError:
        log("cancelled", tag)
        raise
    finally:
        log("end", tag)
    return first + second


# Sleeping and timeouts


@example
async def sleeps() -> Any:
    log = Log()
    await asyncio.sleep(5)
    log("five")
    got = await asyncio.sleep(0.5, result="value")
    await asyncio.sleep(0)
    await asyncio.sleep(-1)
    log(await work("after"))
    return [got, *log]


@example
async def timeout_scope() -> Any:
    log = Log()
    try:
        async with asyncio.timeout(1.5) as scope:
            log(await look("in time", 0.3))
            await look("too late", 9)
            log("never")
    except TimeoutError:
        log("timeout", scope.expired())
    try:
        async with asyncio.timeout(60):
            log(await work("quick"))
            async with asyncio.timeout(0.25):
                await asyncio.sleep(8)
    except TimeoutError:
        log("inner")
    async with asyncio.timeout(None) as open_end:
        open_end.reschedule(asyncio.get_running_loop().time() + 4)
        log(await work("rescheduled"))
    return log


@example
async def timeout_at() -> Any:
    log = Log()
    loop = asyncio.get_running_loop()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(loop.time() + 2):
            await asyncio.sleep(3)
    log("one")
    try:
        async with asyncio.timeout_at(loop.time() - 1):
            await asyncio.sleep(3)
            log("never")
    except TimeoutError:
        log("past")
    return log


@example
async def timeout_in_cleanup() -> Any:
    log = Log()
    try:
        async with asyncio.timeout(0.2):
            try:
                await asyncio.sleep(10)
            finally:
                log(await work("cleanup", 0.7))
    except TimeoutError:
        log("timeout")
    return log


@example
async def wait_for() -> Any:
    log = Log()
    log(await asyncio.wait_for(work("quick", 0.2), 1))
    try:
        await asyncio.wait_for(look("slow", 7), 1.25)
    except TimeoutError:
        log("timeout")
    try:
        await asyncio.wait_for(branch(log, "b", 0.4, 5.5), 3)
    except TimeoutError:
        log("timeout too")
    try:
        await asyncio.wait_for(fail("bad", 0.1), 3)
    except ValueError as exc:
        log(str(exc))
    log(await asyncio.wait_for(work("no limit"), None))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(work("never asked"), 0)
    return log


# Many at once


@example
async def gathered() -> Any:
    log = Log()
    results = await asyncio.gather(
        branch(log, "a", 0.3), branch(log, "b", 0.11), branch(log, "c", 0.22), look("d", 0.55)
    )
    log(results)
    log(await asyncio.gather())
    return log


@example
async def gather_with_exceptions() -> Any:
    log = Log()
    results = await asyncio.gather(work(1, 0.3), fail("no", 0.1), asyncio.sleep(2.5, "slept"), return_exceptions=True)
    log([repr(result) for result in results])
    return log


@example
async def gather_failing() -> Any:
    log = Log()
    tasks = [
        asyncio.create_task(branch(log, "a", 0.4)),
        asyncio.create_task(fail("no", 0.1)),
        asyncio.create_task(branch(log, "b", 0.6)),
    ]
    try:
        await asyncio.gather(*tasks)
    except ValueError as exc:
        log(str(exc))
    log([task.done() for task in tasks])
    log(await tasks[0])
    return log


@example
async def gather_nested() -> Any:
    log = Log()
    inner = asyncio.gather(branch(log, "a", 0.31), branch(log, "b", 0.12))
    other = asyncio.gather(look("x", 0.05), asyncio.gather(work("y", 0.07), work("z", 0.02)))
    log(await asyncio.gather(inner, other, asyncio.sleep(0.2, "s")))
    return log


@example
async def gather_cancelled() -> Any:
    log = Log()
    group = asyncio.gather(branch(log, "a", 0.4, 3), branch(log, "b", 0.1, 4))
    asyncio.get_running_loop().call_later(1.9, group.cancel)
    try:
        await group
    except asyncio.CancelledError:
        log("gathering was cancelled", asyncio.current_task().cancelling())
    return log


@example
async def task_group() -> Any:
    log = Log()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(branch(log, tag, seconds), name=tag)
            for tag, seconds in (("a", 0.3), ("b", 0.1), ("c", 0.2))
        ]
        log(await work("body", 0.05))
    log([task.result() for task in tasks], [task.get_name() for task in tasks])
    return log


@example
async def task_group_failing() -> Any:
    log = Log()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(branch(log, "a", 0.1, 3))
            group.create_task(fail("one", 0.5))
            group.create_task(branch(log, "b", 0.1, 4))
            await asyncio.sleep(60)
            log("never")
    except* ValueError as errors:
        log([str(exc) for exc in errors.exceptions])
    log(asyncio.current_task().cancelling())
    return log


@example
async def task_group_two_failures() -> Any:
    log = Log()

    async def bad_cleanup() -> None:
        try:
            await asyncio.sleep(50)
        finally:
            await fail("in cleanup", 0.3)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(bad_cleanup())
            group.create_task(fail("first", 0.2))
    except ExceptionGroup as errors:
        log([str(exc) for exc in errors.exceptions])
    return log


@example
async def task_group_nested() -> Any:
    log = Log()
    try:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(branch(log, "outer", 0.15, 2))
            try:
                async with asyncio.TaskGroup() as inner:
                    inner.create_task(branch(log, "inner", 0.1, 3))
                    inner.create_task(fail("inner fails", 0.35))
            except* ValueError:
                log("inner group over")
            raise KeyError("outer body")
    except* KeyError:
        log("outer group over")
    return log


@example
async def task_group_cancelled_from_outside() -> Any:
    log = Log()

    async def group_of_two() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(branch(log, "a", 0.1, 7))
            group.create_task(branch(log, "b", 0.2, 8))

    task = asyncio.create_task(group_of_two())
    await asyncio.sleep(1.3)
    task.cancel("enough")
    try:
        await task
    except asyncio.CancelledError:
        log("it is cancelled", task.cancelled())
    return log


@example
async def created_tasks() -> Any:
    log = Log()
    tasks = {asyncio.create_task(branch(log, tag, seconds)) for tag, seconds in (("a", 0.31), ("b", 0.12), ("c", 0.23))}
    for task in list(tasks):
        task.add_done_callback(tasks.discard)
    while tasks:
        await asyncio.sleep(0.1)
    log("all done")
    return log


@example
async def set_of_tasks() -> Any:
    tasks = {asyncio.create_task(asyncio.sleep(1), name=f"t{n}") for n in range(20)}
    order = [await work(task.get_name()) for task in tasks]
    await asyncio.wait(tasks)
    return sorted(order)


@example
async def every_task() -> Any:
    made = [asyncio.create_task(asyncio.sleep(50), name=f"t{n:02}") for n in range(12)]
    await asyncio.sleep(0.1)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        await work(task.get_name())
        task.cancel()
    await asyncio.wait(others)
    return [len(made), *sorted(task.get_name() for task in others if task.cancelled())]


@example
async def shielded() -> Any:
    log = Log()
    inner = asyncio.create_task(branch(log, "kept", 0.5, 2))
    try:
        await asyncio.wait_for(asyncio.shield(inner), 1)
    except TimeoutError:
        log("gave up waiting")
    log(await inner)
    return log


@example
async def as_they_complete() -> Any:
    log = Log()
    for next_one in asyncio.as_completed([work("a", 0.3), look("b", 0.1), look("c", 0.21)]):
        log(await next_one)
    try:
        for next_one in completed_by_name([work("quick", 0.1), asyncio.sleep(30)], timeout=2):
            log(await next_one)
    except TimeoutError:
        log("timeout")
    return log


@example
async def many_as_completed() -> Any:
    results = [await next_one for next_one in completed_by_name([work(f"w{n}", 0.1 + n / 100) for n in range(25)])]
    return sorted(results)


class Looking:
    """An awaitable of the user's own: it hashes by its address."""

    def __init__(self, tag: str, seconds: float) -> None:
        self.tag, self.seconds = tag, seconds

    def __await__(self) -> Any:
        return look(self.tag, self.seconds).__await__()


@example
async def own_awaitables_as_completed() -> Any:
    mine = [Looking(f"m{n}", 0.1 + n / 100) for n in range(30)]
    return [await next_one for next_one in asyncio.as_completed(mine)]


@example
async def wait_first_completed() -> Any:
    log = Log()
    pending = {
        asyncio.create_task(branch(log, tag, seconds), name=tag)
        for tag, seconds in (("a", 0.3), ("b", 0.1), ("c", 0.2))
    }
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        log([task.result() for task in done], len(pending))
    return log


@example
async def wait_first_exception() -> Any:
    log = Log()
    tasks = [
        asyncio.create_task(branch(log, "a", 0.1)),
        asyncio.create_task(fail("x", 0.3)),
        asyncio.create_task(branch(log, "b", 0.9, 3)),
    ]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    log(len(done), len(pending))
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    return log


@example
async def wait_with_timeout() -> Any:
    log = Log()
    tasks = [asyncio.create_task(branch(log, "a", 0.1)), asyncio.create_task(branch(log, "b", 0.2, 6))]
    done, pending = await asyncio.wait(tasks, timeout=1.5)
    log(len(done), len(pending))
    done, pending = await asyncio.wait(tasks)
    log(len(done), len(pending))
    return log


@example
async def wait_on_gatherings() -> Any:
    groups = [asyncio.gather(work(f"{n}", 0.1 + n / 50), asyncio.sleep(0.3)) for n in range(9)]
    done, _ = await asyncio.wait(groups)
    order = [await work(future.result()[0]) for future in done]
    return sorted(order)


# Talking to each other


@example
async def queues() -> Any:
    log = Log()
    jobs: asyncio.Queue[str] = asyncio.Queue(maxsize=2)

    async def producer() -> None:
        for n in range(6):
            await jobs.put(await look(f"job{n}", 0.03))
            log("put", n)

    async def consumer(name: str, seconds: float) -> None:
        while True:
            job = await jobs.get()
            log(name, await work(job, seconds))
            jobs.task_done()

    consumers = [asyncio.create_task(consumer("one", 0.2)), asyncio.create_task(consumer("two", 0.15))]
    await producer()
    await jobs.join()
    for task in consumers:
        task.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    return log


@example
async def other_queues() -> Any:
    log = Log()
    for queue in (asyncio.PriorityQueue(), asyncio.LifoQueue(maxsize=3)):
        putter = asyncio.create_task(_put_all(queue))
        await asyncio.sleep(0.7)
        log([await queue.get() for _ in range(3)])
        try:
            await asyncio.wait_for(queue.get(), 2)
        except TimeoutError:
            log("empty")
        await putter
    return log


async def _put_all(queue: Any) -> None:
    for item in (3, 1, 2):
        queue.put_nowait(await work(item, 0.05))


@example
async def events() -> Any:
    log = Log()
    ready, gone = asyncio.Event(), asyncio.Event()

    async def waiter(name: str) -> None:
        await ready.wait()
        log(name, await work(name, 0.1 if name == "x" else 0.2))
        gone.set()

    tasks = [asyncio.create_task(waiter(name)) for name in ("x", "y")]
    log(await work("preparing", 0.4))
    ready.set()
    await gone.wait()
    log("one is gone")
    await asyncio.wait(tasks)
    return log


@example
async def locks() -> Any:
    log = Log()
    lock = asyncio.Lock()

    async def worker(name: str) -> None:
        async with lock:
            log(name, "in")
            await work(name, 0.2)
            await asyncio.sleep(0.03)
            log(name, "out")

    tasks = [asyncio.create_task(worker(name)) for name in "abcd"]
    await asyncio.sleep(0.3)
    tasks[2].cancel()
    await asyncio.wait(tasks)
    log([task.cancelled() for task in tasks])
    return log


@example
async def semaphores() -> Any:
    log = Log()
    for semaphore in (asyncio.Semaphore(2), asyncio.BoundedSemaphore(3)):

        async def worker(n: int) -> None:
            async with semaphore:  # noqa: B023  # awaited before the next turn
                log(await work(n, 0.1 + n / 30))

        await asyncio.gather(*(worker(n) for n in range(6)))
    try:
        semaphore.release()
    except ValueError:
        log("released too often")
    return log


@example
async def conditions() -> Any:
    log = Log()
    condition = asyncio.Condition()
    items: list[Any] = []

    async def taker(name: str) -> None:
        async with condition:
            await condition.wait_for(lambda: bool(items))
            log(name, items.pop())

    takers = [asyncio.create_task(taker(name)) for name in "pqr"]
    for n in range(3):
        item = await work(n, 0.2)
        async with condition:
            items.append(item)
            if n % 2:
                condition.notify_all()
            else:
                condition.notify()
    await asyncio.gather(*takers)
    return log


@example
async def barriers() -> Any:
    log = Log()
    barrier = asyncio.Barrier(3)

    async def walker(name: str, seconds: float) -> None:
        await work(name, seconds)
        async with barrier as place:
            log(name, place)
        await work(name, seconds / 7)
        await barrier.wait()
        log(name, "second")

    await asyncio.gather(walker("a", 0.31), walker("b", 0.12), walker("c", 0.23))
    return log


@example
async def race_of_timer_and_result() -> Any:
    log = Log()
    for n, seconds in enumerate((0.2, 0.4)):
        timer = asyncio.create_task(asyncio.sleep(0.3, "timer"))
        result = asyncio.create_task(work("result", seconds))
        done, pending = await asyncio.wait({timer, result}, return_when=asyncio.FIRST_COMPLETED)
        log(n, [task.result() for task in done])
        await asyncio.gather(*pending)
    return log


# Generators, managers, contexts


async def numbers(log: Log, last: int) -> AsyncIterator[int]:
    try:
        for n in range(last):
            yield await look(n, 0.05)
            await asyncio.sleep(0.1)
    finally:
        log("generator closes")
        log(await work("closing", 0.03))


@example
async def generators() -> Any:
    log = Log()
    async for n in numbers(log, 3):
        log(await work(n))
    log([n async for n in numbers(log, 2)])
    async with contextlib.aclosing(numbers(log, 5)) as some:
        async for n in some:
            log("taken", n)
            break
    log("after")
    return log


@example
async def generator_sent_to() -> Any:
    log = Log()

    async def echo() -> Any:
        got = None
        while True:
            try:
                got = yield await work(got, 0.05)
            except KeyError as exc:
                got = f"thrown {exc}"

    talk = echo()
    log(await anext(talk))
    log(await talk.asend("hello"))
    log(await talk.athrow(KeyError("ball")))
    await talk.aclose()
    return log


@example
async def managers() -> Any:
    log = Log()

    @contextlib.asynccontextmanager
    async def resource(name: str) -> AsyncIterator[str]:
        log("open", await work(name, 0.1))
        try:
            yield name
        finally:
            log("close", await work(name, 0.1))

    async with resource("one") as one, resource("two"):
        log(one)
    async with contextlib.AsyncExitStack() as stack:
        for name in ("x", "y"):
            await stack.enter_async_context(resource(name))
        stack.push_async_callback(work, "callback", 0.02)
    with contextlib.suppress(ValueError):
        async with resource("failing"):
            await fail("inside")
    return log


colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


@example
async def contexts() -> Any:
    log = Log()

    async def child(name: str, seconds: float) -> None:
        log(name, colour.get())
        colour.set(name)
        await work(name, seconds)
        log(name, colour.get())

    colour.set("main")
    await asyncio.gather(child("red", 0.2), child("blue", 0.1))
    own = contextvars.copy_context()
    own.run(colour.set, "own")
    await asyncio.create_task(child("green", 0.1), context=own)
    log("main", colour.get(), own[colour])
    asyncio.get_running_loop().call_later(0.3, lambda: log("callback", colour.get()))
    await asyncio.sleep(0.5)
    return log


# Cancellation


@example
async def cancelled_inside() -> Any:
    log = Log()
    task = asyncio.create_task(branch(log, "a", 0.2, 5))
    await asyncio.sleep(1)
    log(task.cancel("no more"))
    try:
        await task
    except asyncio.CancelledError:
        log("cancelled", task.cancelled(), asyncio.current_task().cancelling())
    never_begun = asyncio.create_task(branch(log, "b", 0.2))
    never_begun.cancel()
    await asyncio.wait([never_begun])
    log(never_begun.cancelled())
    return log


@example
async def cancel_with_cleanup() -> Any:
    log = Log()

    async def careful() -> str:
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            log(await work("rescue", 0.3))
        finally:
            log(await work("clean", 0.2))
        return "survived"

    task = asyncio.create_task(careful())
    await asyncio.sleep(1)
    task.cancel()
    log(await task)
    return log


@example
async def uncancelled() -> Any:
    log = Log()

    async def stubborn() -> int:
        me = asyncio.current_task()
        for n in range(3):
            try:
                await asyncio.sleep(10 + n)
            except asyncio.CancelledError:
                log("no", me.cancelling(), me.uncancel())
        return me.cancelling()

    task = asyncio.create_task(stubborn())
    for _ in range(3):
        await asyncio.sleep(1)
        task.cancel()
    log(await task)
    return log


@example
async def cancelled_by_itself() -> Any:
    log = Log()

    async def suicide() -> None:
        asyncio.current_task().cancel()
        log("still here")
        try:
            await look("never", 4)
        finally:
            log(await work("cleanup", 0.1))

    task = asyncio.create_task(suicide())
    await asyncio.wait([task])
    log(task.cancelled())
    return log


@example
async def swallowed_cancel() -> Any:
    log = Log()
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        log("swallowed", asyncio.current_task().cancelling())
    log(await work("and goes on", 0.2))
    return log


@example
async def cancelled_main_with_cleanup() -> Any:
    log = Log()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(branch(log, "a", 0.1, 40))
            group.create_task(branch(log, "b", 0.3, 50))
    finally:
        log(await work("clean", 0.2))
        log(await send("bye", 0.2))
    return log


@example
async def names_of_tasks() -> Any:
    log = Log()

    async def who() -> None:
        log(await work(asyncio.current_task().get_name(), 0.1))

    await asyncio.gather(asyncio.create_task(who(), name="first"), asyncio.create_task(who(), name="second"))
    asyncio.current_task().set_name("boss")
    log(asyncio.current_task().get_name())
    return log


@example
async def callbacks() -> Any:
    log = Log()
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(log, "soon")
    late = loop.call_later(3, log, "late")
    loop.call_later(1, log, "one")
    loop.call_at(loop.time() + 2, done.set_result, "done")
    loop.call_later(1.5, late.cancel)
    log(await done)
    log(late.cancelled(), await work("x", 2))
    future = asyncio.ensure_future(work("future", 0.1))
    future.add_done_callback(lambda f: log("callback", f.result()))
    await future
    await asyncio.sleep(0)
    return log


@example
async def leftovers() -> Any:
    log = Log()

    async def forever(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1)
        finally:
            await work(f"cleanup of {name}", 0.1)

    tasks = [asyncio.create_task(forever(name)) for name in "xy"]
    await asyncio.sleep(2.5)
    return [*log, len(tasks)]


@example
async def abandoned_generator() -> Any:
    log = Log()
    async for n in numbers(log, 5):
        if n == 1:
            break
    log(await work("going on", 0.3))
    return list(log)[:1]


@example
async def groups_of_errors() -> Any:
    log = Log()

    async def nested() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail("a", 0.1))
            group.create_task(_fail_late("b", 0.5))

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(nested())
            group.create_task(_key_error(0.3))
    except* KeyError as errors:
        log("keys", len(errors.exceptions))
    except* ValueError as errors:
        log("values", len(errors.exceptions))
    return log


async def _fail_late(tag: str, seconds: float) -> None:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        await fail(tag, seconds)


async def _key_error(seconds: float) -> None:
    try:
        await asyncio.sleep(40)
    finally:
        await work("k", seconds)
        raise KeyError("late")


@example
async def failing_run() -> Any:
    await work("fine")
    await asyncio.gather(fail("the end", 0.2), look("other", 0.5))


@example
async def sends_once() -> Any:
    log = Log()
    log(await asyncio.gather(send("a", 0.3), send("b", 0.1), work("c", 0.2)))
    log(await asyncio.wait_for(send("d", 0.4), 5))
    return log
