"""The jobs of threads, done on the event loop, where it does not matter who does them.

To hand one over and wake up for its result takes several times as long as a job on a disk in
memory. Its result still comes with a later turn of the loop, as it does from a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar
from unittest.mock import patch

from quafka_broker.wal.log_thread import LogThread, set_exception, set_result
from quafka_loop.eager_task import DirectFuture

T = TypeVar("T")


@contextmanager
def no_threads() -> Iterator[None]:
    """For as long as this lasts, on the loop that runs now."""
    loop = asyncio.get_running_loop()

    def at_once(
        _executor: Executor | None, job: Callable[..., T], *arguments: object
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = loop.create_future()
        try:
            settle = partial(done.set_result, job(*arguments))
        except Exception as e:
            settle = partial(done.set_exception, e)
        loop.call_soon(lambda: done.cancelled() or settle())
        return done

    def at_once_for_the_log(_thread: LogThread, job: Callable[[], T]) -> DirectFuture[T]:
        done: DirectFuture[T] = DirectFuture(loop=loop)
        try:
            settle = partial(set_result, done, job())
        except Exception as e:
            settle = partial(set_exception, done, e)
        loop.call_soon(settle)
        return done

    with (
        patch.object(loop, "run_in_executor", at_once),
        patch.object(LogThread, "run", at_once_for_the_log),
    ):
        yield
