"""The thread that converts message sets of old clients; orgs take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from quafka_loop import clock, threads
from quafka_loop.eager_task import current_timed_task
from quafka_loop.log_context import current_party
from quafka_loop.turns import OpTurns

_R = TypeVar("_R")

_BREATH = 50e-6


class Converter:
    """Runs conversions one by one: old clients take no more than their share of the processor.

    The thread's line has at most one conversion of each org. Those of one org run in the order of
    the calls.
    """

    def __init__(self) -> None:
        self._thread = threads.ThreadPoolExecutor(1, "message-sets")
        self._turns = OpTurns(1, lambda _org: False)
        self._numbers = count()

    async def run(self, work: Callable[[], _R]) -> _R:
        """Run the work in the thread; its processor time is the request's."""

        def timed() -> tuple[_R, float]:
            began = clock.thread_time()
            return work(), clock.thread_time() - began

        number = next(self._numbers)
        try:
            await self._turns.acquire(number, current_party())
            result, seconds = await asyncio.get_running_loop().run_in_executor(self._thread, timed)
        finally:
            self._turns.release(number)
        task = current_timed_task()
        if task is not None:
            task.add(seconds)
        return result


def breathe() -> None:
    """Yield the interpreter to the event loop, which would otherwise wait 5 ms for it."""
    clock.sleep(_BREATH)
