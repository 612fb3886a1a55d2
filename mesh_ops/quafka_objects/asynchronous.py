"""An object store for asyncio: each call blocks a thread of a private pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from quafka_loop import threads
from quafka_objects.store import Buffer, ETag, ObjectInfo, ObjectStore, StoredObject

_CALLS_AT_ONCE = 32

T = TypeVar("T")


class AsyncObjectStore:
    """The methods of an `ObjectStore`, awaited, with the same promises and exceptions.

    A cancelled call may still take effect: a thread cannot be interrupted.
    """

    def __init__(self, store: ObjectStore, calls_at_once: int = _CALLS_AT_ONCE) -> None:
        self._store = store
        self._pool = threads.ThreadPoolExecutor(calls_at_once, thread_name_prefix="objects")

    async def close(self) -> None:
        """Wait for the calls under way, and end the threads."""
        await asyncio.to_thread(self._pool.shutdown)

    async def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._call(partial(self._store.read, path, start, length))

    async def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return await self._call(partial(self._store.read_ranges, path, ranges))

    async def get(self, path: str) -> StoredObject:
        return await self._call(partial(self._store.get, path))

    async def exists(self, path: str) -> bool:
        return await self._call(partial(self._store.exists, path))

    async def list_objects(self, folder: str = "", after: str = "") -> Sequence[ObjectInfo]:
        return await self._call(lambda: tuple(self._store.list_objects(folder, after)))

    async def put(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        await self._call(partial(self._store.put, path, data))

    async def create(self, path: str, data: Buffer) -> ETag:
        return await self._call(partial(self._store.create, path, data))

    async def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        return await self._call(partial(self._store.replace, path, data, expected))

    async def delete(self, path: str) -> None:
        await self._call(partial(self._store.delete, path))

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)
