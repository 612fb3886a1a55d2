"""Requests to a store, counted by kind: how many, how large, how slow, and how many failed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from quafka_loop import clock, threads
from quafka_objects.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    TransientStoreError,
)
from quafka_objects.passing import PassingStore
from quafka_objects.store import PART_BYTES, Buffer, ETag, ObjectInfo, ObjectStore, StoredObject

KINDS = ("put", "create", "replace", "get", "head", "list", "delete")
"""put: replaced objects and objects in parts; create and replace: writes on a condition."""
_PAGE = 1_000  # objects in an answer to LIST
_GAP = 1 << 20  # ranges with smaller gaps are read by one request
_ANSWERS = (ObjectExistsError, ObjectChangedError, ObjectNotFoundError)

T = TypeVar("T")


@dataclass(slots=True)
class RequestFigures:
    """The requests of one kind.

    Attributes:
        refused: answers that are not failures: exists, changed, not found.
        transient: throttled, failed or unanswered calls; another attempt may succeed.
        seconds: the sum over all calls; `buckets` counts calls by the meter's bounds.
    """

    requests: int = 0
    bytes: int = 0
    refused: int = 0
    transient: int = 0
    failed: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=list[int])


class StoreMeter:
    """Counts for one store, from any thread."""

    def __init__(self, bounds: Sequence[float] = ()) -> None:
        """`bounds`: upper bounds of the buckets of latencies, in seconds."""
        self.bounds = tuple(bounds)
        self.kinds = {kind: RequestFigures(buckets=[0] * (len(bounds) + 1)) for kind in KINDS}
        self.began = clock.monotonic()
        self._lock = threads.Lock()

    def add(
        self, kind: str, seconds: float, requests: int, size: int, error: OSError | None
    ) -> None:
        """Count a call."""
        with self._lock:
            found = self.kinds[kind]
            found.requests += requests
            found.bytes += size
            found.seconds += seconds
            found.buckets[bisect_left(self.bounds, seconds)] += 1
            if isinstance(error, _ANSWERS):
                found.refused += 1
            elif isinstance(error, TransientStoreError):
                found.transient += 1
            elif error is not None:
                found.failed += 1

    @property
    def age(self) -> float:
        """Seconds since counting began."""
        return clock.monotonic() - self.began


class MeteredStore(PassingStore):
    """Counts each call. Behind a store that repeats calls, each attempt counts."""

    def __init__(self, inner: ObjectStore, meter: StoreMeter) -> None:
        super().__init__(inner)
        self._meter = meter

    def _call(self, kind: str, path: str, call: Callable[[], T]) -> T:
        return self._measure(kind, call, lambda _: (1, 0))

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self._measure("get", lambda: self.inner.read(path, start, length), _length)

    def view(self, path: str, start: int = 0, length: int | None = None) -> memoryview:
        return self._measure("get", lambda: self.inner.view(path, start, length), _length)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._measure(
            "get",
            lambda: self.inner.read_ranges(path, ranges),
            lambda found: (requests_for(ranges), sum(map(len, found))),
        )

    def get(self, path: str) -> StoredObject:
        return self._measure(
            "get", lambda: self.inner.get(path), lambda found: (1, len(found.data))
        )

    def list_objects(self, folder: str = "", after: str = "") -> Iterator[ObjectInfo]:
        yield from self._measure(
            "list",
            lambda: list(self.inner.list_objects(folder, after)),
            lambda found: (max(1, -(-len(found) // _PAGE)), 0),
        )

    def put(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        if isinstance(data, Buffer):
            size = memoryview(data).nbytes
            self._measure("put", lambda: self.inner.put(path, data), lambda _: _whole(size))
        else:
            counted = _Counted(data)
            self._measure("put", lambda: self.inner.put(path, counted), lambda _: counted.sent())

    def create(self, path: str, data: Buffer) -> ETag:
        return self._write("create", data, lambda: self.inner.create(path, data))

    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        return self._write("replace", data, lambda: self.inner.replace(path, data, expected))

    def _write(self, kind: str, data: Buffer, call: Callable[[], ETag]) -> ETag:
        return self._measure(kind, call, lambda _: (1, memoryview(data).nbytes))

    def _measure(
        self, kind: str, call: Callable[[], T], weigh: Callable[[T], tuple[int, int]]
    ) -> T:
        """Make a call, and count the requests and bytes that `weigh` returns."""
        started = clock.monotonic()
        try:
            found = call()
        except OSError as e:
            self._meter.add(kind, clock.monotonic() - started, 1, 0, e)
            raise
        self._meter.add(kind, clock.monotonic() - started, *weigh(found), None)
        return found


class _Counted:
    """Chunks, with a count of the bytes taken."""

    def __init__(self, chunks: Iterable[Buffer]) -> None:
        self._chunks = chunks
        self.taken = 0

    def __iter__(self) -> Iterator[Buffer]:
        for chunk in self._chunks:
            self.taken += memoryview(chunk).nbytes
            yield chunk

    def sent(self) -> tuple[int, int]:
        """Requests and bytes of an upload in parts."""
        return _in_parts(self.taken), self.taken


def _in_parts(size: int) -> int:
    """Requests of an upload in parts, including its start and its completion."""
    return 2 + max(1, -(-size // PART_BYTES))


def _whole(size: int) -> tuple[int, int]:
    """Requests and bytes of one buffer, which is sent in parts only if it is large."""
    return (1 if size <= PART_BYTES else _in_parts(size)), size


def requests_for(ranges: Sequence[tuple[int, int]]) -> int:
    """The number of requests that read these ranges, each a start and a length."""
    requests, end = 0, -_GAP - 1
    for start, length in sorted(ranges):
        if start - end > _GAP:
            requests += 1
        end = max(end, start + length)
    return requests


def _length(data: bytes | memoryview) -> tuple[int, int]:
    return 1, len(data)
