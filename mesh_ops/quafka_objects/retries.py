"""Repeats calls while a store throttles, fails or does not answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from quafka_loop import clock
from quafka_objects.errors import TransientStoreError
from quafka_objects.passing import PassingStore
from quafka_objects.store import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long and how often a call is repeated.

    Attributes:
        seconds: no attempt begins later than this after the first one.
        first: the longest wait after the first attempt, in seconds; it doubles with each attempt.
        most: the upper limit of all waits.
    """

    seconds: float = 30.0
    first: float = 0.1
    most: float = 5.0

    def wait(self, attempt: int, chance: float) -> float:
        """Seconds to wait after an attempt, counted from 0; `chance` is from 0 to 1.

        From 0 to the longest wait, so that clients that a store has rejected at the same moment do
        not return at the same moment.
        """
        return chance * float(min(self.most, self.first * 2 ** min(attempt, 30)))


class RetryingStore(PassingStore):
    """Repeats calls that failed for a transient reason, except puts of chunks.

    A `replace` whose first attempt took effect without an answer, and whose object another writer
    has replaced since, is refused as changed: the caller reads the object, as after any refusal.
    """

    def __init__(
        self,
        inner: ObjectStore,
        policy: RetryPolicy = RetryPolicy(),
        *,
        sleep: Callable[[float], object] | None = None,
        now: Callable[[], float] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(inner)
        self._policy = policy
        self._sleep = sleep or clock.sleep
        self._now = now or clock.monotonic
        self._chance = chance

    def _call(self, kind: str, path: str, call: Callable[[], T]) -> T:
        last = self._now() + self._policy.seconds
        attempt = 0
        while True:
            try:
                return call()
            except TransientStoreError:
                wait = self._policy.wait(attempt, self._chance())
                if kind == "stream" or self._now() + wait > last:
                    raise
            self._sleep(wait)
            attempt += 1
