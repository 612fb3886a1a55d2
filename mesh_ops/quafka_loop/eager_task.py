"""Tasks that run at once, and futures whose waiters continue in the call that sets the result.

An `asyncio.Task` takes a turn of the event loop to begin and one more after each wait. One op of
the mesh has several waits in two processes, so these turns were most of its latency. Python 3.12
has eager tasks, which still take a turn after each wait.

`EagerTask` follows "Extending: Task lifetime support" of Python's asyncio documentation: it is the
current task while its coroutine runs, so `asyncio.timeout` and the like work inside it.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import (
    _enter_task,  # pyright: ignore[reportPrivateUsage]
    _leave_task,  # pyright: ignore[reportPrivateUsage]
)
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, ClassVar, TypeVar, cast

from quafka_loop import clock

T = TypeVar("T")

_NO_CONTEXT = Context()

# Without super(), which costs as much as the call.
_set_result = cast("Callable[[Any, object], None]", asyncio.Future[Any].set_result)


class DirectFuture(asyncio.Future[T]):
    """A future that continues its eager waiters within `set_result` and `set_exception`.

    Whoever sets the result must first bring its own state in order: the waiters run before the call
    returns. Ordinary callbacks and tasks, and all waiters of a cancelled future, run in the next
    turn of the loop.
    """

    _direct: tuple[Callable[[], object], ...] = ()

    def add_direct_callback(self, callback: Callable[[], object]) -> None:
        """Call this when the future is done; at once if it is."""
        if self.done():
            callback()
        else:
            self._direct = (*self._direct, callback)

    def set_result(self, result: T, /) -> None:
        _set_result(self, result)
        if self._direct:
            self._call_back()

    def set_exception(self, exception: type | BaseException, /) -> None:
        super().set_exception(exception)
        if self._direct:
            self._call_back()

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled and self._direct:
            self.get_loop().call_soon(self._call_back)
        return cancelled

    def _call_back(self) -> None:
        callbacks, self._direct = self._direct, ()
        for callback in callbacks:
            callback()


class EagerTask(DirectFuture[T]):
    """Runs a coroutine, at once up to its first wait.

    After a wait for a `DirectFuture` it continues in the call that sets the result; after any other
    wait in a turn of the loop, as a task does. Its own result is set in the same call, so it may be
    done when the constructor returns. `cancel` never runs the coroutine in the same call.
    """

    _waits_for: asyncio.Future[Any] | None = None
    _must_cancel = False
    _cancel_requests = 0

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        super().__init__(loop=loop)
        self._coroutine = coroutine
        self._context: Context = copy_context()
        self._step()

    def cancel(self, msg: Any | None = None) -> bool:
        """Throw CancelledError into the coroutine, in the next turn of the loop."""
        if self.done():
            return False
        self._cancel_requests += 1
        if self._waits_for is None or not self._waits_for.cancel(msg):
            self._must_cancel = True
        return True

    def cancelling(self) -> int:
        """The number of requests to cancel, less the calls of `uncancel`: see `asyncio.Task`."""
        return self._cancel_requests

    def uncancel(self) -> int:
        """Take back one request to cancel: see `asyncio.Task`."""
        self._cancel_requests = max(0, self._cancel_requests - 1)
        return self._cancel_requests

    def get_coro(self) -> Coroutine[Any, Any, T]:
        """The coroutine."""
        return self._coroutine

    def _step(self) -> None:
        """Run the coroutine to its next wait, or to its end."""
        loop = self.get_loop()
        this: Any = self  # looks like a task to asyncio
        waited, self._waits_for = self._waits_for, None
        outer = asyncio.current_task(loop)
        if outer is not None:
            _leave_task(loop, outer)
        _enter_task(loop, this)
        value: Any = None
        error: BaseException | None = None
        try:
            if self._must_cancel:
                self._must_cancel = False
                if waited is not None and waited.done() and not waited.cancelled():
                    waited.exception()  # retrieved, as by a task: else asyncio reports it as lost
                waits_for = self._context.run(self._coroutine.throw, asyncio.CancelledError())
            else:
                waits_for = self._context.run(self._coroutine.send, None)
        except StopIteration as e:
            value = e.value
        except BaseException as e:
            error = e
        else:
            self._wait_for(waits_for)
            return
        finally:
            _leave_task(loop, this)
            if outer is not None:
                _enter_task(loop, outer)
        try:
            self._end(value, error)
        finally:
            del error  # its traceback has this frame

    def _wait_for(self, future: asyncio.Future[Any] | None) -> None:
        if future is None:  # asyncio.sleep(0)
            self.get_loop().call_soon(self._step)
            return
        future._asyncio_future_blocking = False  # noqa: SLF001 - what a task must do: see the docs
        self._waits_for = future
        if isinstance(future, DirectFuture):
            future.add_direct_callback(self._step)
        else:
            future.add_done_callback(self._continue)
        if self._must_cancel and future.cancel():
            self._must_cancel = False

    def _continue(self, _: asyncio.Future[Any]) -> None:
        self._step()

    def _end(self, value: Any, error: BaseException | None) -> None:
        # Its variables may refer to what refers to this task: only a garbage collection would free
        # such a cycle.
        self._context = _NO_CONTEXT
        if error is None:
            self.set_result(value)
        elif isinstance(error, asyncio.CancelledError):
            super().cancel()
        else:
            self.set_exception(error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise error


class TimedTask(EagerTask[T]):
    """Measures its steps on the loop, without the steps of other timed tasks within them."""

    _others: ClassVar[float] = 0.0
    """Seconds of timed steps within the step that runs now."""
    _seconds = 0.0
    _since: float | None = None

    @property
    def seconds(self) -> float:
        """The time that the coroutine has taken so far, including the running step."""
        since = self._since
        if since is None:
            return self._seconds
        return self._seconds + clock.perf_counter() - since - TimedTask._others

    def add(self, seconds: float) -> None:
        """Add time that was taken elsewhere for this task."""
        self._seconds += seconds

    def _step(self) -> None:
        outer, TimedTask._others = TimedTask._others, 0.0
        self._since = began = clock.perf_counter()
        try:
            super()._step()
        finally:
            took = clock.perf_counter() - began
            self._seconds += took - TimedTask._others
            self._since = None
            TimedTask._others = outer + took


def current_timed_task() -> TimedTask[Any] | None:
    """The timed task that runs now, if one does."""
    task: Any = asyncio.current_task()
    return cast("TimedTask[Any]", task) if isinstance(task, TimedTask) else None
