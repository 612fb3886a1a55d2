"""Reads ranges of objects through a cache of blocks, ahead of sequential readers.

A missing range is read with few large requests, which several readers share. For a reader that
continues where it ended, the bytes that follow are read ahead, twice as many each time; so a
catch-up waits for the store's latency once and not for each block.
"""

from __future__ import annotations

import errno
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from quafka_broker.chain.block_cache import BLOCK, BlockCache, Key
from quafka_broker.chain.errors import StoreUnavailableError
from quafka_broker.chain.patience import Patience
from quafka_loop import clock, threads
from quafka_objects.store import ObjectStore

_REQUEST_BLOCKS = 16
_REQUEST = _REQUEST_BLOCKS * BLOCK
_LARGE_BYTES = 32 << 20  # read as a whole: such a read would evict blocks that others need
_LARGE_REQUEST = 8 << 20
_REQUESTS_AT_ONCE = 16
_AHEAD_REQUESTS = 12  # bounds the memory of blocks that are read ahead and not cached yet
_FIRST_WINDOW = 1 << 20
_LARGEST_WINDOW = 32 << 20
_LARGEST_GAP = 16 << 20
_GAP_SHARE = 8  # skipped bytes per byte read: others often read the rest
_OBJECTS_FOLLOWED = 512
_READERS_FOLLOWED = 8
_DEADLINE_SECONDS = 10.0
_SHORT_READS = 3


class StoredRange(NamedTuple):
    """An object: its path and size."""

    path: str
    size: int


class _Follower:
    """One sequential reader of an object: its next position, and the end of the read-ahead."""

    __slots__ = ("ahead", "at", "window")

    def __init__(self, at: int) -> None:
        self.at = self.ahead = at
        self.window = _FIRST_WINDOW


class ObjectReader:
    """Reads the objects of one shard. Thread-safe."""

    def __init__(
        self,
        store: ObjectStore,
        cache: BlockCache,
        patience: Patience,
        deadline_seconds: float = _DEADLINE_SECONDS,
    ) -> None:
        """`deadline_seconds`: how long a read repeats unanswered requests after `serve`; until then
        it repeats them for ever."""
        self._store = store
        self._cache = cache
        self._patience = patience
        self._deadline = deadline_seconds
        self._serving = False
        self._threads = threads.ThreadPoolExecutor(
            _REQUESTS_AT_ONCE, thread_name_prefix="store-read"
        )
        self._lock = threads.RLock()  # a request may already be done when its callback is added
        self._loading: dict[Key, tuple[Future[bytes], int]] = {}  # the future's first block
        self._followers: OrderedDict[str, deque[_Follower]] = OrderedDict()
        self._ahead = 0
        self.bytes = 0
        """Bytes read from the store since the start."""

    def serve(self) -> None:
        """The log is open: from now on there are clients, which must get an answer in time."""
        self._serving = True

    def close(self) -> None:
        """Wait for requests under way."""
        self._threads.shutdown(cancel_futures=True)

    def read(self, stored: StoredRange, position: int, size: int) -> bytes:
        """Read bytes of an object, fewer at its end. Blocks.

        Raises:
            OSError: the store has not answered in time, or lacks the object.
        """
        end = min(position + size, stored.size)
        if end <= position:
            return b""
        if end - position >= _LARGE_BYTES:
            return self.read_whole(stored, position, size)
        self._follow(stored, position, end)
        found, missing = self._cached(stored, position, end)
        if missing:
            loads = self._load(stored, missing)
            for number, (load, first) in loads.items():
                data = memoryview(load.result())[(number - first) * BLOCK :]
                begin = max(0, position - number * BLOCK)
                found[number] = data[begin : min(BLOCK, end - number * BLOCK)]
        return b"".join(found[number] for number in sorted(found))

    def read_whole(self, stored: StoredRange, position: int, size: int) -> bytes:
        """`read` by parallel requests, past the cache."""
        end = min(position + size, stored.size)
        loads = [
            self._submit(self._get, stored.path, at, min(end, at + _LARGE_REQUEST))
            for at in range(position, end, _LARGE_REQUEST)
        ]
        return b"".join([load.result() for load in loads])

    def read_cached(self, stored: StoredRange, position: int, size: int) -> bytearray | None:
        """`read` without waiting; None if the cache or memory lacks any of the bytes."""
        end = min(position + size, stored.size)
        if end - position < size:
            return None
        pieces: list[bytearray] = []
        for number, start, stop in _blocks(position, end):
            piece = self._cache.read((stored.path, number), start, stop - start, wait=False)
            if piece is None:
                return None
            pieces.append(piece)
        self._follow(stored, position, end)
        return pieces[0] if len(pieces) == 1 else bytearray().join(pieces)

    def request(self, stored: StoredRange, ranges: Iterable[tuple[int, int]]) -> None:
        """Request the bytes of these ranges, each a position and a size, that the cache lacks."""
        wanted = {
            number
            for position, size in ranges
            for number, _, _ in _blocks(position, min(position + size, stored.size))
            if not self._cache.has((stored.path, number))
        }
        with suppress(StoreUnavailableError):
            self._load(stored, sorted(wanted))

    # --- blocks -------------------------------------------------------------------------------

    def _cached(
        self, stored: StoredRange, position: int, end: int
    ) -> tuple[dict[int, bytearray | memoryview], list[int]]:
        found: dict[int, bytearray | memoryview] = {}
        missing: list[int] = []
        for number, start, stop in _blocks(position, end):
            piece = self._cache.read((stored.path, number), start, stop - start)
            if piece is None:
                missing.append(number)
            else:
                found[number] = piece
        return found, missing

    def _load(
        self, stored: StoredRange, numbers: Iterable[int], *, ahead: bool = False
    ) -> dict[int, tuple[Future[bytes], int]]:
        """Request blocks that are not requested yet; returns each request and its first block."""
        with self._lock:
            wanted = {number: self._loading.get((stored.path, number)) for number in numbers}
            runs = _runs([number for number, load in wanted.items() if load is None])
            if ahead:
                runs = runs[: max(0, _AHEAD_REQUESTS - self._ahead)]
                self._ahead += len(runs)
            for run in runs:
                future = self._submit(self._request, stored, run)
                for number in run:
                    wanted[number] = self._loading[stored.path, number] = future, run[0]
                future.add_done_callback(partial(self._loaded, stored.path, run, ahead))
        return {number: load for number, load in wanted.items() if load is not None}

    def _submit(self, job: Callable[..., bytes], *arguments: object) -> Future[bytes]:
        """Begin a request. Raises StoreUnavailableError."""
        try:
            return self._threads.submit(job, *arguments)
        except RuntimeError as e:
            raise StoreUnavailableError(errno.ESHUTDOWN, "the broker stops") from e

    def _request(self, stored: StoredRange, run: Sequence[int]) -> bytes:
        start, end = run[0] * BLOCK, min(stored.size, (run[-1] + 1) * BLOCK)
        data = self._get(stored.path, start, end)
        view = memoryview(data)
        for number in run:
            at = (number - run[0]) * BLOCK
            self._cache.add((stored.path, number), view[at : at + BLOCK])
        return data

    def _loaded(self, path: str, run: Sequence[int], ahead: bool, load: Future[bytes]) -> None:
        with self._lock:
            self._ahead -= ahead
            for number in run:
                self._loading.pop((path, number), None)

    def _get(self, path: str, start: int, end: int) -> bytes:
        get = partial(self._store.read, path, start, end - start)
        deadline = clock.monotonic() + self._deadline if self._serving else None
        for _ in range(_SHORT_READS):
            data = self._patience.until_answered(f"reading {path}", get, deadline)
            with self._lock:
                self.bytes += len(data)
            if len(data) >= end - start:
                return data
        raise OSError(errno.EIO, f"{path} is cut short")

    # --- reading ahead ------------------------------------------------------------------------

    def _follow(self, stored: StoredRange, position: int, end: int) -> None:
        """Request the blocks that a sequential reader will need next."""
        with self._lock:
            follower = self._follower(stored.path, position, end)
            if follower is None or end <= follower.at:  # a new reader, or a repeated read
                return
            follower.at = end
            start = max(follower.ahead, end)
            stop = min(stored.size, end + follower.window)
            if start >= stop or stop - start < min(
                _REQUEST, follower.window // 2, stored.size - start
            ):
                return
            follower.window = min(_LARGEST_WINDOW, 2 * follower.window)
            follower.ahead = stop
        numbers = range(start // BLOCK, (stop - 1) // BLOCK + 1)
        wanted = [number for number in numbers if not self._cache.has((stored.path, number))]
        try:
            left = self._load(stored, wanted, ahead=True)
        except StoreUnavailableError:
            return
        if len(left) < len(wanted):  # too much is under way: the next read tries again
            first = next(number for number in wanted if number not in left)
            follower.ahead = min(follower.ahead, first * BLOCK)

    def _follower(self, path: str, position: int, end: int) -> _Follower | None:
        """The reader that continues here; if there is none, adds one and returns None."""
        followers = self._followers.get(path)
        if followers is None:
            followers = self._followers[path] = deque(maxlen=_READERS_FOLLOWED)
            if len(self._followers) > _OBJECTS_FOLLOWED:
                self._followers.popitem(last=False)
        self._followers.move_to_end(path)
        gap = max(_FIRST_WINDOW, min(_LARGEST_GAP, _GAP_SHARE * (end - position)))
        for each in followers:
            if each.at - BLOCK <= position <= each.at + gap:
                return each
        followers.append(_Follower(end))
        return None


def _blocks(position: int, end: int) -> Iterable[tuple[int, int, int]]:
    """The blocks of a range: number, and start and end of the part within the block."""
    for number in range(position // BLOCK, (end - 1) // BLOCK + 1):
        at = number * BLOCK
        yield number, max(0, position - at), min(BLOCK, end - at)


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Groups of adjacent blocks, each read by one request."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number and len(runs[-1]) < _REQUEST_BLOCKS:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
