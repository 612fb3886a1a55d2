"""Repeats calls to a store from threads, with growing, jittered pauses, until they are answered."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from typing import TypeVar

from quafka_broker.chain.errors import FencedError, StoreUnavailableError
from quafka_loop import clock, threads
from quafka_objects.errors import ObjectNotFoundError

log = logging.getLogger("quafka.broker.store")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
_SILENT_ATTEMPTS = 3

T = TypeVar("T")


class Patience:
    """How long the threads of one shard repeat unanswered calls."""

    def __init__(self, longest_pause: float = _LONGEST_PAUSE) -> None:
        self._longest_pause = longest_pause
        self._until: float | None = None
        self._hurried = threads.Event()
        self.retries = 0
        """Calls repeated since the start."""

    def end_within(self, seconds: float) -> None:
        """Repeat no call after this time: the broker stops."""
        self._until = clock.monotonic() + seconds
        self._hurried.set()

    def until_answered(self, what: str, call: Callable[[], T], deadline: float | None = None) -> T:
        """Repeat a call that may take effect more than once.

        Args:
            deadline: a `time.monotonic()`; None: until the broker stops.

        Raises:
            ObjectNotFoundError: the store has no such object.
            StoreUnavailableError: no answer in time.
            OSError: another broker has taken over the shard.
        """
        pause = min(_FIRST_PAUSE, self._longest_pause)
        attempt = 0
        while True:
            try:
                return call()
            except ObjectNotFoundError:
                raise
            except FencedError as e:
                raise OSError(errno.EROFS, f"another broker has the shard: {e}") from e
            except OSError as e:
                attempt += 1
                self.retries += 1
                if attempt == _SILENT_ATTEMPTS:
                    log.warning("%s: trying again: %s", what, e)
                left = self._left(deadline)
                if left <= 0:
                    raise StoreUnavailableError(errno.ETIMEDOUT, f"{what}: {e}") from e
                self._sleep(min(left, random.uniform(pause / 2, pause)))  # noqa: S311 - jitter
                pause = min(2 * pause, self._longest_pause)

    def _left(self, deadline: float | None) -> float:
        ends = [end for end in (deadline, self._until) if end is not None]
        return min(ends) - clock.monotonic() if ends else float("inf")

    def _sleep(self, seconds: float) -> None:
        """Sleep; `end_within` wakes sleeping threads once."""
        if self._hurried.is_set():
            clock.sleep(seconds)
        else:
            self._hurried.wait(seconds)
