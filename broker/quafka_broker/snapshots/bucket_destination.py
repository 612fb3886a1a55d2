"""A bucket for snapshots.

The lock is an object that its holder rewrites every few seconds. A command that sees no change for
long enough, by its own clock, takes the lock over by compare and swap. A holder that was only slow
notices this at its next write, and publishes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from quafka_broker.snapshots.destination import LOCK, Destination, Lock
from quafka_loop import clock, threads
from quafka_objects.bucket import BucketStore
from quafka_objects.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from quafka_objects.store import ETag, ObjectStore

DEAD_SECONDS = 30.0
"""A lock that is not rewritten for this long is taken over."""
_RENEWALS = 6  # in that time
_POLL_SECONDS = 0.5


class BucketDestination(BucketStore, Destination):
    """A bucket, or a prefix in one."""

    def __init__(self, url: str, dead_seconds: float = DEAD_SECONDS) -> None:
        super().__init__(url)
        self._dead_seconds = dead_seconds

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        self.put(path, chunks)

    def link(self, source: Path, path: str) -> bool:
        return False

    def publish(self, path: str, data: bytes) -> None:
        self.create(path, data)

    @contextmanager
    def locked(self) -> Generator[Lock]:
        try:
            held = _HeldLock(self, self._acquire(), self._dead_seconds / _RENEWALS)
        except ObjectNotFoundError as e:
            raise ObjectNotFoundError("there is no such bucket") from e
        try:
            yield held
        finally:
            held.release()

    def _acquire(self) -> ETag:
        """Create the lock object, or take over one whose holder is dead."""
        with suppress(ObjectExistsError):
            return self.create(LOCK, _token())
        first = self._lock_etag()
        until = clock.monotonic() + self._dead_seconds
        while first is not None and clock.monotonic() < until:
            clock.sleep(_POLL_SECONDS)
            now = self._lock_etag()
            if now is not None and now != first:
                raise BlockingIOError(f"another command holds {self.where}/{LOCK}")
            if now is None:
                first = None
        try:
            if first is None:
                return self.create(LOCK, _token())
            return self.replace(LOCK, _token(), first)
        except (ObjectExistsError, ObjectChangedError) as e:
            raise BlockingIOError(f"another command holds {self.where}/{LOCK}") from e

    def _lock_etag(self) -> ETag | None:
        try:
            return self.get(LOCK).etag
        except ObjectNotFoundError:
            return None


class _LockLostError(OSError):
    """Another command holds the lock, or may hold it."""


class _HeldLock:
    """A lock object of ours, which a thread renews."""

    def __init__(self, store: ObjectStore, etag: ETag, renew_seconds: float) -> None:
        self._store = store
        self._etag = etag
        self._renew_seconds = renew_seconds
        self._lost = ""
        self._ended = threads.Event()
        self._writing = threads.Lock()
        self._thread = threads.Thread(target=self._renew, name="snapshot-lock", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._lost:
            raise _LockLostError(f"the lock was lost: {self._lost}")
        with self._writing:
            try:
                self._etag = self._store.replace(LOCK, _token(), self._etag)
            except ObjectChangedError as e:
                self._lost = str(e)
                raise _LockLostError(f"the lock was lost: {self._lost}") from e

    def release(self) -> None:
        """Stop renewing; delete the object if it is still ours."""
        self._ended.set()
        self._thread.join()
        with suppress(OSError):  # otherwise the next command takes it over
            self.check()
            self._store.delete(LOCK)

    def _renew(self) -> None:
        failing_since: float | None = None
        while not self._ended.wait(self._renew_seconds):
            try:
                self.check()
                failing_since = None
            except _LockLostError:
                return
            except OSError as e:
                failing_since = failing_since or clock.monotonic()
                if clock.monotonic() - failing_since > self._renew_seconds * 3:
                    self._lost = str(e)
                    return


def _token() -> bytes:
    """Bytes that are unique to each write of a lock."""
    return os.urandom(16)
