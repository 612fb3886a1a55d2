"""A store that is slow, or fails, as real ones are and do: latencies and faults by a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from quafka_loop import clock, threads
from quafka_objects.errors import TransientStoreError
from quafka_objects.passing import PassingStore
from quafka_objects.store import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Faults:
    """What may happen to a call, each as a share of calls.

    Attributes:
        busy: refused with SlowDown, without effect.
        lost: has its effect; the answer is lost.
    """

    busy: float = 0.0
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Lognormal: half of the calls take longer than `median` seconds. Bytes take time, too."""

    median: float = 0.0
    sigma: float = 0.4
    bytes_per_second: float = 100e6


S3_STANDARD = Latency(0.035)
S3_EXPRESS = Latency(0.006)


class InjectedStore(PassingStore):
    """Another store, with latency and faults. `down`: every call fails, as in an outage."""

    def __init__(
        self,
        inner: ObjectStore,
        faults: Faults = Faults(),
        latency: Latency = Latency(),
        seed: int = 0,
    ) -> None:
        super().__init__(inner)
        self.faults = faults
        self.latency = latency
        self.down = False
        self.calls: list[tuple[str, str]] = []
        """Kind and path of each call that has reached the store."""
        self._random = random.Random(seed)
        self._lock = threads.Lock()

    @property
    def is_remote(self) -> bool:
        return True

    def _call(self, kind: str, path: str, call: Callable[[], T]) -> T:
        with self._lock:
            fate, wait = self._random.random(), self._wait()
        if self.latency.median:
            clock.sleep(wait)
        if self.down or fate < self.faults.busy:
            raise TransientStoreError(f"{self.where}/{path}: 503 Slow Down, injected")
        with self._lock:
            self.calls.append((kind, path))
        found = call()
        if self.latency.median and isinstance(found, bytes | memoryview):
            clock.sleep(len(found) / self.latency.bytes_per_second)
        if fate < self.faults.busy + self.faults.lost:
            raise TransientStoreError(f"{self.where}/{path}: the answer is lost, injected")
        return found

    def _wait(self) -> float:
        median = self.latency.median
        return self._random.lognormvariate(math.log(median), self.latency.sigma) if median else 0.0
