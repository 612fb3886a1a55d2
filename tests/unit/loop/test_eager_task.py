"""Eager tasks: begun and continued without turns of the loop, and otherwise as asyncio's."""

from __future__ import annotations

import asyncio
import gc
from contextvars import ContextVar

import pytest

from quafka_loop.eager_task import DirectFuture, EagerTask

VARIABLE: ContextVar[int] = ContextVar("VARIABLE", default=0)


async def test_a_coroutine_without_waits_is_done_at_once() -> None:
    async def work() -> int:
        return 7

    task = EagerTask(work())
    assert task.done()
    assert await task == 7


async def test_set_result_continues_the_waiter_in_the_same_call() -> None:
    seen: list[int] = []
    future: DirectFuture[int] = DirectFuture()

    async def work() -> None:
        seen.append(await future)

    task = EagerTask(work())
    assert seen == []
    assert not task.done()
    future.set_result(3)
    assert seen == [3]
    assert task.done()


async def test_several_waiters_tasks_among_them() -> None:
    future: DirectFuture[int] = DirectFuture()

    async def work() -> int:
        return await future

    eager = [EagerTask(work()) for _ in range(3)]
    ordinary = asyncio.create_task(work())
    await asyncio.sleep(0)
    future.set_result(3)
    assert [task.done() for task in eager] == [True] * 3
    assert await ordinary == 3
    assert await asyncio.wait_for(asyncio.shield(future), 30) == 3


async def test_a_task_inside_the_step_of_another() -> None:
    inner: DirectFuture[int] = DirectFuture()

    async def first() -> object:
        before = asyncio.current_task()
        inner.set_result(1)
        assert asyncio.current_task() is before
        return before

    async def second() -> object:
        await inner
        return asyncio.current_task()

    waiting = EagerTask(second())
    running = EagerTask(first())
    assert running.result() is running
    assert waiting.result() is waiting


async def test_errors_reach_the_waiter() -> None:
    future: DirectFuture[int] = DirectFuture()

    async def work() -> int:
        return await future

    task = EagerTask(work())
    future.set_exception(ValueError("bad"))
    assert task.done()
    with pytest.raises(ValueError, match="bad"):
        await task


async def test_cancellation_runs_the_coroutine_in_a_later_turn() -> None:
    events: list[str] = []
    future: DirectFuture[int] = DirectFuture()

    async def work() -> None:
        try:
            await future
        except asyncio.CancelledError:
            events.append("cancelled")
            await asyncio.sleep(0)
            raise

    task = EagerTask(work())
    assert task.cancel()
    assert events == []
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["cancelled"]
    assert task.cancelled()
    assert not task.cancel()


async def test_a_cancelled_coroutine_may_go_on() -> None:
    async def work() -> int:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(60)
        return 5

    task = EagerTask(work())
    task.cancel()
    assert await task == 5


async def test_an_error_that_comes_with_a_cancellation_is_not_reported_as_lost() -> None:
    """As for an `asyncio.Task`: the cancellation wins."""
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    parts: list[DirectFuture[int]] = [DirectFuture(), DirectFuture()]

    async def work() -> None:
        await asyncio.gather(*parts)

    task = EagerTask(work())
    parts[0].set_result(1)
    parts[1].set_exception(ValueError("lost"))  # the gathering learns of it in the next turn
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    parts.clear()
    del task
    gc.collect()
    assert reported == []


async def test_timeouts_task_groups_and_locks_work_inside() -> None:
    lock = asyncio.Lock()

    async def slow() -> str:
        async with lock:
            try:
                async with asyncio.timeout(0.01):
                    await DirectFuture[int]()
            except TimeoutError:
                return "late"
        return "?"

    async def both() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(slow()) for _ in range(2)]
        return [task.result() for task in tasks]

    async with asyncio.timeout(5):
        assert await EagerTask(both()) == ["late", "late"]
        assert list(await asyncio.gather(EagerTask(slow()), EagerTask(slow()))) == ["late", "late"]


async def test_a_timeout_around_an_eager_wait_that_ends_in_time() -> None:
    future: DirectFuture[int] = DirectFuture()

    async def work() -> int:
        async with asyncio.timeout(5):
            return await future

    task = EagerTask(work())
    future.set_result(9)
    assert task.result() == 9


async def test_context_variables_stay_in_their_task() -> None:
    async def work(value: int, future: DirectFuture[None]) -> int:
        VARIABLE.set(value)
        await future
        return VARIABLE.get()

    futures: list[DirectFuture[None]] = [DirectFuture(), DirectFuture()]
    tasks = [EagerTask(work(n + 1, future)) for n, future in enumerate(futures)]
    for future in futures:
        future.set_result(None)
    assert [task.result() for task in tasks] == [1, 2]
    assert VARIABLE.get() == 0


async def test_cancelled_before_its_wait() -> None:
    """A coroutine that cancels its own task is cancelled at its next wait."""

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    task = EagerTask(work())
    with pytest.raises(asyncio.CancelledError):
        await task
