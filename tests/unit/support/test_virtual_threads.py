"""Virtual threads and what they wait for: the contracts of `threading`, in a fixed order."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError

import pytest

from quafka_loop import clock, threads


def begin(*works: tuple[str, float], seen: list[str], lock: threads.Lock) -> list[threads.Thread]:
    def work(name: str, seconds: float) -> None:
        with lock:
            seen.append(name)
            clock.sleep(seconds)

    made = [threads.Thread(target=work, args=each) for each in works]
    for thread in made:
        thread.start()
    return made


def test_a_lock_goes_to_those_who_wait_in_their_order() -> None:
    seen, lock = list[str](), threads.Lock()
    began = clock.monotonic()
    for thread in begin(("a", 1.0), ("b", 1.0), ("c", 1.0), seen=seen, lock=lock):
        thread.join()
    assert seen == ["a", "b", "c"]
    assert clock.monotonic() - began == pytest.approx(3.0)
    assert not lock.locked()


def test_who_does_not_wait_for_a_lock_goes_without() -> None:
    lock = threads.Lock()
    (thread,) = begin(("a", 5.0), seen=[], lock=lock)
    clock.sleep(1.0)
    assert not lock.acquire(blocking=False)
    began = clock.monotonic()
    assert not lock.acquire(timeout=2.0)
    assert clock.monotonic() - began == pytest.approx(2.0)
    assert lock.acquire(timeout=20.0)
    thread.join()
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_its_owner_takes_a_reentrant_lock_again() -> None:
    lock, seen = threads.RLock(), list[str]()

    def other() -> None:
        with lock:
            seen.append("other")

    with lock, lock:
        threads.Thread(target=other).start()
        clock.sleep(1.0)
        assert seen == []
    clock.sleep(1.0)
    assert seen == ["other"]
    with pytest.raises(RuntimeError):
        lock.release()


def test_an_event_wakes_all_or_passes_its_time() -> None:
    event, seen = threads.Event(), list[int]()

    def work(number: int) -> None:
        event.wait()
        seen.append(number)

    for number in range(3):
        threads.Thread(target=work, args=(number,)).start()
    began = clock.monotonic()
    assert not event.wait(1.5)
    assert clock.monotonic() - began == pytest.approx(1.5)
    event.set()
    assert event.wait()
    clock.sleep(0.0)
    assert seen == [0, 1, 2]
    event.clear()
    assert not event.is_set()


def test_a_barrier_opens_for_all() -> None:
    barrier, seen = threads.Barrier(3), list[float]()

    def work(seconds: float) -> None:
        clock.sleep(seconds)
        barrier.wait()
        seen.append(clock.monotonic())

    made = [threads.Thread(target=work, args=(float(n),)) for n in range(3)]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    assert len(set(seen)) == 1


def test_a_queue_is_first_in_first_out() -> None:
    queue, seen = threads.SimpleQueue[int](), list[int]()
    thread = threads.Thread(target=lambda: seen.extend(queue.get() for _ in range(3)))
    thread.start()
    for number in range(3):
        queue.put(number)
        clock.sleep(0.1)
    thread.join()
    assert seen == [0, 1, 2]
    assert queue.empty()


def test_each_thread_has_locals_of_its_own() -> None:
    mine, seen = threads.local(), list[bool]()
    mine.value = 1
    thread = threads.Thread(target=lambda: seen.append(hasattr(mine, "value")))
    thread.start()
    thread.join()
    assert seen == [False]
    assert mine.value == 1


def test_join_passes_its_time() -> None:
    thread = threads.Thread(target=lambda: clock.sleep(5.0))
    thread.start()
    thread.join(1.0)
    assert thread.is_alive()
    thread.join()
    assert not thread.is_alive()


def test_a_pool_begins_jobs_in_the_order_of_their_submission() -> None:
    begun: list[tuple[int, float]] = []
    zero = clock.monotonic()

    def work(number: int) -> int:
        begun.append((number, clock.monotonic() - zero))
        clock.sleep(1.0)
        return number * number

    with threads.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(4))) == [0, 1, 4, 9]
    assert begun == [(0, 0.0), (1, 0.0), (2, 1.0), (3, 1.0)]
    with pytest.raises(RuntimeError):
        pool.submit(work, 1)


def test_results_errors_and_cancellation_of_jobs() -> None:
    def fail() -> None:
        raise ValueError("a mistake")

    with threads.ThreadPoolExecutor(1) as pool:
        failed = pool.submit(fail)
        slow, waiting = pool.submit(clock.sleep, 5.0), pool.submit(clock.sleep, 1.0)
        with pytest.raises(ValueError, match="a mistake"):
            failed.result()
        assert isinstance(failed.exception(), ValueError)
        with pytest.raises(TimeoutError):
            slow.result(1.0)
        assert waiting.cancel()
        with pytest.raises(CancelledError):
            waiting.result()
        assert slow.result() is None


async def test_jobs_of_the_loop_are_fibers() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(asyncio.to_thread(clock.sleep, 2.0) for _ in range(4)))
    assert loop.time() - began == pytest.approx(2.0)


async def test_a_thread_waits_for_a_coroutine() -> None:
    loop = asyncio.get_running_loop()

    async def later() -> float:
        await asyncio.sleep(3.0)
        return loop.time()

    def call() -> float:
        return asyncio.run_coroutine_threadsafe(later(), loop).result(10.0)

    began = loop.time()
    assert await asyncio.to_thread(call) - began == pytest.approx(3.0)


async def test_several_signals_are_one_call() -> None:
    called: list[int] = []
    signal = threads.LoopSignal(asyncio.get_running_loop(), lambda: called.append(1))
    signal.set()
    signal.set()
    await asyncio.sleep(0.01)
    signal.set()
    await asyncio.sleep(0.01)
    assert len(called) == 2
    signal.close()
