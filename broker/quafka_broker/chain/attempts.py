"""Repeats calls to a store until they are answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from random import Random, SystemRandom
from typing import Any, TypeVar

from quafka_objects.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError

_log = logging.getLogger("quafka.broker.store")

ANSWERS = (ObjectChangedError, ObjectExistsError, ObjectNotFoundError)
"""Errors that are the store's answer. After any other OSError the outcome is unknown."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
_FIRST_DEADLINE_S, _LONGEST_DEADLINE_S = 5.0, 60.0
_SILENT_ATTEMPTS = 4

jitter: Random = SystemRandom()
"""Spreads the attempts of several callers; the simulation replaces it."""

T = TypeVar("T")


class Attempts:
    """The attempts at one call: deadlines, and pauses that double, with jitter.

    Deadlines double, too, so that a large object gets through a slow link in the end.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._count = 0
        self._deadline_s = _FIRST_DEADLINE_S
        self._pause_s = _FIRST_PAUSE_S
        self.trouble: str | None = None
        """Why the last attempt was not answered."""

    async def once(self, call: Callable[[], Awaitable[T]]) -> T:
        """Try once. Raises `ANSWERS`, or another OSError (such as TimeoutError): try again."""
        try:
            async with asyncio.timeout(self._deadline_s):
                return await call()
        except ANSWERS:
            raise
        except OSError as e:
            if isinstance(e, TimeoutError):
                self._deadline_s = min(2 * self._deadline_s, _LONGEST_DEADLINE_S)
                self.trouble = "no answer in time"
            else:
                self.trouble = str(e)
            raise

    async def pause(self) -> None:
        """Wait before the next attempt."""
        self._count += 1
        if self._count == _SILENT_ATTEMPTS:
            _log.warning("%s: trying again: %s", self._what, self.trouble or "refused")
        await asyncio.sleep(jitter.uniform(self._pause_s / 2, self._pause_s))
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    async def until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call that may take effect more than once. Raises `ANSWERS`."""
        while True:
            try:
                return await self.once(call)
            except ANSWERS:
                raise
            except OSError:
                await self.pause()


async def in_parallel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run the calls in parallel; returns their results. The first error cancels the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
