"""Reads objects ahead during the takeover of a shard.

The objects that a new owner needs are known early: the manifest names the list of files, and
objects never change. So they are read in parallel, while the chain is fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import NamedTuple, TypeVar

from quafka_broker.chain.attempts import in_parallel
from quafka_broker.chain.file_objects import segment_number
from quafka_broker.chain.objects import ListedObject, read_header
from quafka_broker.chain.store import ChainStore
from quafka_broker.wal.checkpoint_file import is_checkpoint, number_of
from quafka_loop import threads
from quafka_objects.passing import PassingStore
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import (
    ChainHeader,
    StoredFile,
    chain_path,
    decode_directory,
    decode_header,
)
from quafka_proto.errors import Malformed

_READS_AT_ONCE = 64
_CHUNK = 4 << 20
_MOST_BYTES = 128 << 20
"""Beyond this, objects are read on demand."""

T = TypeVar("T")


class _Range(NamedTuple):
    start: int
    end: int
    data: Future[bytes]


class PrefetchedStore(PassingStore):
    """Another store with some of its objects read ahead. Thread-safe.

    If reading ahead fails, the caller that needs the object reads it with its own retries.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._threads = threads.ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="prefetch")
        self._ranges: dict[str, list[_Range]] = {}
        self._lock = threads.Lock()
        self._left = _MOST_BYTES
        self._objects = 0

    @property
    def fetched(self) -> tuple[int, int]:
        """The number of objects that are read ahead, and their bytes; without the list of files."""
        return self._objects, _MOST_BYTES - self._left

    def fetch(self, path: str, size: int) -> None:
        """Begin to read an object, unless the limit is reached. Does not block."""
        with self._lock:
            if size > self._left or path in self._ranges:
                return
            self._left -= size
            self._objects += 1
            self._ranges[path] = [
                _Range(at, min(size, at + _CHUNK), self._begin(path, at, min(_CHUNK, size - at)))
                for at in range(0, size, _CHUNK)
            ]

    def fetch_files(self, directory: str) -> None:
        """Begin to read a list of files, and then the files that a start reads."""
        reading = self._begin(directory, 0, None)
        self._ranges[directory] = [_Range(0, _MOST_BYTES, reading)]
        self._threads.submit(self._fetch_listed, reading)

    async def headers(
        self, calls: ChainStore, shard: int, listed: Sequence[ListedObject]
    ) -> list[ChainHeader]:
        """Read objects of the chain ahead; returns their headers. Raises as `read_header`."""
        for each in listed:
            self.fetch(chain_path(shard, each.seq), each.size)
        return await in_parallel(self._header(calls, shard, each.seq) for each in listed)

    def forget(self) -> None:
        """Free the prefetched objects: every call goes to the other store from now on."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._ranges = {}

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        ranges = self._ranges.get(path)
        if ranges:
            end = ranges[-1].end if length is None else min(start + length, ranges[-1].end)
            with suppress(OSError, CancelledError):
                return b"".join(_pieces(ranges, start, end))
        return super().read(path, start, length)

    def _begin(self, path: str, start: int, length: int | None) -> Future[bytes]:
        return self._threads.submit(self.inner.read, path, start, length)

    def _fetch_listed(self, reading: Future[bytes]) -> None:
        with suppress(OSError, Malformed, RuntimeError):  # the later read reports it
            for file in _read_at_start(decode_directory(reading.result())):
                self.fetch(file.path, file.size)

    async def _header(self, calls: ChainStore, shard: int, seq: int) -> ChainHeader:
        ranges = self._ranges.get(chain_path(shard, seq))
        if ranges:
            with suppress(OSError, Malformed):
                data: bytes = await asyncio.wrap_future(ranges[0].data)
                return decode_header(data, shard, seq)
        return await read_header(calls, shard, seq)

    def _call(self, kind: str, path: str, call: Callable[[], T]) -> T:
        return call()


def _pieces(ranges: Sequence[_Range], start: int, end: int) -> Iterator[bytes]:
    for each in ranges:
        if each.start < end and each.end > start:
            yield each.data.result()[max(0, start - each.start) : end - each.start]


def _read_at_start(files: Iterable[StoredFile]) -> list[StoredFile]:
    """All files but segments, which are not read, and older checkpoints; small ones first."""
    small = [file for file in files if segment_number(file.name) is None]
    checkpoints = [file for file in small if is_checkpoint(file.name)]
    newest = max(checkpoints, key=lambda file: number_of(file.name), default=None)
    wanted = [file for file in small if file is newest or file not in checkpoints]
    return sorted(wanted, key=lambda file: file.size)
