"""Verifies by experiment that a store keeps the guarantees that a log needs.

Of several creators of one object exactly one may succeed. Of several writers that have read the
same ETag exactly one may replace the object. Reads and listings see a write at once. Some servers
accept the conditions but do not enforce them, which only races reveal.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from quafka_loop import clock, threads
from quafka_objects.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    UnsafeStoreError,
)
from quafka_objects.retries import RetryingStore, RetryPolicy
from quafka_objects.store import ETag, ObjectStore

FOLDER = "check"
CREATORS, OBJECTS = 20, 5
WRITERS, ROUNDS = 4, 30
_PATIENCE = RetryPolicy(seconds=60.0)
_SIZE = 1_024


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of the races. `median`, `slowest`: of one creation or swap, in seconds."""

    creations: int
    swaps: int
    median: float
    slowest: float
    seconds: float


def verify_store(
    store: ObjectStore,
    creators: int = CREATORS,
    objects: int = OBJECTS,
    rounds: int = ROUNDS,
    patience: RetryPolicy = _PATIENCE,
) -> Proof:
    """Race creators and writers below `check/` in the store, and delete what they wrote. Blocks.

    Raises:
        UnsafeStoreError: the store must not hold a log; the message gives the reason.
        ObjectStoreError: it cannot be used at all, or (`TransientStoreError`) not at present.
    """
    began = clock.monotonic()
    race = _Race(RetryingStore(store, patience), f"{FOLDER}/{os.urandom(8).hex()}", creators)
    try:
        for number in range(objects):
            race.create(f"{race.folder}/object-{number}")
        race.swap(f"{race.folder}/counter", rounds)
        race.look(objects)
    except ObjectNotFoundError as e:
        raise UnsafeStoreError(f"{store.where}: an object just written cannot be read: {e}") from e
    except (ObjectChangedError, ObjectExistsError) as e:
        raise UnsafeStoreError(f"{store.where}: a write without a rival was refused: {e}") from e
    finally:
        race.close()
    return Proof(
        objects, rounds, statistics.median(race.took), max(race.took), clock.monotonic() - began
    )


class _Race:
    def __init__(self, store: ObjectStore, folder: str, creators: int) -> None:
        self.store = store
        self.folder = folder
        self.took: list[float] = []
        self._creators = creators
        self._pool = threads.ThreadPoolExecutor(creators, thread_name_prefix="race")

    def create(self, path: str) -> None:
        """Race several creators: one succeeds, and the object has its bytes from then on."""
        bodies = [os.urandom(_SIZE) for _ in range(self._creators)]
        done = self._at_once([self._creation(path, body) for body in bodies])
        winners = [body for body, etag in zip(bodies, done, strict=True) if etag is not None]
        if len(winners) != 1:
            raise UnsafeStoreError(
                f"{self.store.where}: {len(winners)} of {self._creators} creators of one object "
                "were told that they had created it; one must be"
            )
        if self.store.read(path) != winners[0]:
            raise UnsafeStoreError(
                f"{self.store.where}: an object has not the bytes of the one creator that succeeded"
            )
        if self._creation(path, os.urandom(_SIZE))() is not None:
            raise UnsafeStoreError(f"{self.store.where}: an object was created a second time")

    def swap(self, path: str, rounds: int) -> None:
        """Race several writers that raise a counter from the same ETag: one succeeds each time."""
        first = etag = self.store.create(path, _counter(0, b""))
        for number in range(1, rounds + 1):
            bodies = [_counter(number, os.urandom(16)) for _ in range(WRITERS)]
            done = self._at_once([self._swap(path, body, etag) for body in bodies])
            winners = [pair for pair in zip(bodies, done, strict=True) if pair[1] is not None]
            if len(winners) != 1:
                raise UnsafeStoreError(
                    f"{self.store.where}: {len(winners)} of {WRITERS} writers replaced the same "
                    "version of an object; one must"
                )
            found = self.store.get(path)
            if found.data != winners[0][0] or found.etag == etag:
                raise UnsafeStoreError(
                    f"{self.store.where}: an object is not what the one successful writer wrote"
                )
            etag = found.etag
        if self._swap(path, _counter(0, os.urandom(16)), first)() is not None:
            raise UnsafeStoreError(
                f"{self.store.where}: an object was replaced by an ETag that it had before"
            )

    def look(self, objects: int) -> None:
        """Check that objects are listed in order, read in part, and gone once deleted."""
        expected = sorted([f"{self.folder}/object-{n}" for n in range(objects)])
        expected.insert(0, f"{self.folder}/counter")
        if [found.path for found in self.store.list_objects(self.folder)] != expected:
            raise UnsafeStoreError(
                f"{self.store.where}: a list lacks objects just written, or is not in order"
            )
        rest = [found.path for found in self.store.list_objects(self.folder, expected[0])]
        if rest != expected[1:]:
            raise UnsafeStoreError(f"{self.store.where}: a list does not begin after a path")
        path = expected[-1]
        if self.store.read(path, 100, 50) != self.store.read(path)[100:150]:
            raise UnsafeStoreError(f"{self.store.where}: a read of a range has other bytes")
        self.store.delete(path)
        with suppress(ObjectNotFoundError):
            self.store.get(path)
            raise UnsafeStoreError(f"{self.store.where}: a deleted object can still be read")

    def close(self) -> None:
        """Delete the remaining objects; if that fails, some KB stay in the store."""
        self._pool.shutdown()
        with suppress(OSError):
            for found in list(self.store.list_objects(self.folder)):
                self.store.delete(found.path)

    def _creation(self, path: str, body: bytes) -> Callable[[], ETag | None]:
        def create() -> ETag | None:
            with suppress(ObjectExistsError):
                return self.store.create(path, body)
            return None

        return create

    def _swap(self, path: str, body: bytes, expected: ETag) -> Callable[[], ETag | None]:
        def swap() -> ETag | None:
            with suppress(ObjectChangedError):
                return self.store.replace(path, body, expected)
            return None

        return swap

    def _at_once(self, calls: Sequence[Callable[[], ETag | None]]) -> list[ETag | None]:
        ready = threads.Barrier(len(calls))

        def run(call: Callable[[], ETag | None]) -> ETag | None:
            ready.wait()
            started = clock.monotonic()
            found = call()
            self.took.append(clock.monotonic() - started)
            return found

        return list(self._pool.map(run, calls))


def _counter(number: int, nonce: bytes) -> bytes:
    return b"%d %s" % (number, nonce.hex().encode())
