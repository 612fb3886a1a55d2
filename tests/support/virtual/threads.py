"""The classes of `quafka_loop.threads` on a hub: a thread is a fiber, and waiting is a switch."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from functools import partial
from typing import Any, Generic, TypeVar

from greenlet import GreenletExit

from tests.support.virtual.hub import Fiber, Hub

T = TypeVar("T")

_hubs: list[Hub] = []


def use(hub: Hub) -> None:
    """Make new objects belong to this hub."""
    _hubs.append(hub)


def leave() -> None:
    """Undo the last `use`."""
    _hubs.pop()


def current_hub() -> Hub:
    """The hub that is in use."""
    return _hubs[-1]


class _Waiting:
    """Fibers that wait for something, in their order."""

    def __init__(self) -> None:
        self.hub = current_hub()
        self._fibers: deque[Fiber] = deque()

    def wait(self, until: float | None = None) -> bool:
        """Block until woken, or until a moment; returns whether woken."""
        fiber = self.hub.current
        self._fibers.append(fiber)
        woken = self.hub.block(until)
        if not woken:
            self._fibers.remove(fiber)
        return woken

    def wake_one(self) -> None:
        while self._fibers:
            fiber = self._fibers.popleft()
            if fiber.is_waiting:
                self.hub.wake(fiber)
                return

    def wake_all(self) -> None:
        fibers, self._fibers = self._fibers, deque()
        for fiber in fibers:
            self.hub.wake(fiber)

    def deadline(self, timeout: float | None) -> float | None:
        return None if timeout is None else self.hub.now + timeout


class Lock:
    """As `threading.Lock`."""

    def __init__(self) -> None:
        self._waiting = _Waiting()
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        until = self._waiting.deadline(None if timeout < 0 else timeout)
        while self._is_held:
            if not blocking or not self._waiting.wait(until):
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False
        self._waiting.wake_one()

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """As `threading.RLock`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._hub = current_hub()
        self._owner: Fiber | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._hub.current
        if self._owner is not me:
            if not self._lock.acquire(blocking, timeout):
                return False
            self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        if self._owner is not self._hub.current:
            raise RuntimeError("cannot release un-acquired lock")
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Event:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self._waiting = _Waiting()
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._waiting.wake_all()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        until = self._waiting.deadline(timeout)
        while not self._is_set:
            if not self._waiting.wait(until):
                break
        return self._is_set


class Barrier:
    """As `threading.Barrier`, without its action, its time limit and its breaking."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._arrived = 0
        self._waiting = _Waiting()

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is None
        number = self._arrived
        self._arrived += 1
        if self._arrived == self._parties:
            self._arrived = 0
            self._waiting.wake_all()
        else:
            self._waiting.wait()
        return number


class SimpleQueue(Generic[T]):
    """As `queue.SimpleQueue`, without time limits."""

    def __init__(self) -> None:
        self._waiting = _Waiting()
        self._items: deque[T] = deque()

    def put(self, item: T) -> None:
        self._items.append(item)
        self._waiting.wake_one()

    def get(self) -> T:
        while not self._items:
            self._waiting.wait()
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class _Locals(dict[Fiber, dict[str, Any]]):
    pass


class local:  # noqa: N801 - the name of `threading.local`
    """As `threading.local`: attributes of its own for each fiber."""

    def __init__(self) -> None:
        object.__setattr__(self, "_of", _Locals())
        object.__setattr__(self, "_hub", current_hub())

    def _mine(self) -> dict[str, Any]:
        found: dict[str, Any] = object.__getattribute__(self, "_of").setdefault(
            object.__getattribute__(self, "_hub").current, {}
        )
        return found

    def __getattr__(self, name: str) -> Any:
        try:
            return self._mine()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._mine()[name] = value

    def __delattr__(self, name: str) -> None:
        self._mine().pop(name)


class Thread:
    """As `threading.Thread`. Its errors go to `threading.excepthook`, too."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        assert target is not None, "subclasses of Thread are not simulated"
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self.ident: int | None = None
        self._run = partial(target, *args, **(kwargs or {}))
        self._over = Event()
        self._hub = current_hub()
        self._fiber: Fiber | None = None

    def start(self) -> None:
        self._fiber = self._hub.spawn(self._live, self.name)
        self.ident = id(self._fiber)

    def _live(self) -> None:
        try:
            self._run()
        except Exception as e:
            threading.excepthook(threading.ExceptHookArgs((type(e), e, e.__traceback__, None)))
            raise
        finally:
            self._over.set()

    def join(self, timeout: float | None = None) -> None:
        self._over.wait(timeout)

    def is_alive(self) -> bool:
        return self.ident is not None and not self._over.is_set()


def future_result(future: futures.Future[T], timeout: float | None = None) -> T:
    """As `concurrent.futures.Future.result`, for fibers that wait."""
    _await(future, timeout)
    return _real_result(future, 0)


def future_exception(
    future: futures.Future[Any], timeout: float | None = None
) -> BaseException | None:
    """As `concurrent.futures.Future.exception`, for fibers that wait."""
    _await(future, timeout)
    return _real_exception(future, 0)


_real_result = futures.Future.result
_real_exception = futures.Future.exception


def _await(future: futures.Future[Any], timeout: float | None) -> None:
    if not future.done():
        over = Event()
        future.add_done_callback(lambda _: over.set())
        over.wait(timeout)


class ThreadPoolExecutor(futures.Executor):
    """As `concurrent.futures.ThreadPoolExecutor`: jobs begin in the order of their submission."""

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self._most = max_workers or 8
        self._name = thread_name_prefix or "pool"
        self._hub = current_hub()
        self._jobs: deque[tuple[futures.Future[Any], Callable[[], Any]]] = deque()
        self._running = 0
        self._is_closed = False
        self._idle = Event()
        self._idle.set()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
        if self._is_closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: futures.Future[T] = futures.Future()
        self._jobs.append((future, partial(fn, *args, **kwargs)))
        self._idle.clear()
        if self._running < self._most:
            self._running += 1
            self._hub.spawn(self._work, self._name)
        return future

    def _work(self) -> None:
        while self._jobs:
            future, job = self._jobs.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = job()
            except GreenletExit:
                raise
            except BaseException as e:
                future.set_exception(e)
            else:
                future.set_result(result)
            del future, job
        self._running -= 1
        if not self._running:
            self._idle.set()

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        submitted = [self.submit(fn, *each) for each in zip(*iterables, strict=False)]
        return (future.result(timeout) for future in submitted)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_closed = True
        if cancel_futures:
            jobs, self._jobs = self._jobs, deque()
            for future, _ in jobs:
                future.cancel()
                future.set_running_or_notify_cancel()
        if wait:
            self._idle.wait()


class LoopSignal:
    """As `quafka_loop.threads.LoopSignal`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback: Callable[[], object] | None = callback
        self._is_set = False

    def set(self) -> None:
        if not self._is_set and not self._loop.is_closed():
            self._is_set = True
            self._loop.call_soon_threadsafe(self._call)

    def close(self) -> None:
        self._callback = None

    def _call(self) -> None:
        self._is_set = False
        if self._callback is not None:
            self._callback()
