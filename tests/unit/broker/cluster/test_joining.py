"""A broker's first look at a store: verified before its first use, however the store begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from quafka_broker.shard.stored_log import LogStore, join_cluster
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.cluster import read_cluster
from quafka_objects.errors import TransientStoreError, UnsafeStoreError
from quafka_objects.folder import FolderStore
from quafka_objects.passing import PassingStore
from quafka_objects.race import FOLDER
from quafka_objects.store import Buffer, ETag, ObjectStore
from quafka_proto.cluster_format import ClusterFile

NEW = ClusterFile("a-cluster", 4, by_name=True)

T = TypeVar("T")


class Throttled(PassingStore):
    """The first calls are refused."""

    def __init__(self, inner: ObjectStore, refused: int) -> None:
        super().__init__(inner)
        self.left = refused
        self.paths: list[str] = []

    def _call(self, kind: str, path: str, call: Callable[[], T]) -> T:
        self.paths.append(path)
        if self.left:
            self.left -= 1
            raise TransientStoreError("503 Slow Down")
        return call()


class Overwrites(FolderStore):
    """Takes `If-None-Match: *` and ignores it."""

    def create(self, path: str, data: Buffer) -> ETag:
        self.put(path, data)
        return self.get(path).etag


async def joined(store: ObjectStore) -> ClusterFile:
    opened = LogStore(store, AsyncObjectStore(store, 1))
    try:
        async with asyncio.timeout(60):
            return await join_cluster(opened, NEW)
    finally:
        await opened.close()


async def test_a_start_waits_while_the_store_throttles(tmp_path: Path) -> None:
    store = Throttled(FolderStore(tmp_path), refused=3)
    assert await joined(store) == NEW
    assert read_cluster(store) == NEW
    assert any(path.startswith(FOLDER) for path in store.paths)


async def test_a_store_that_throttles_first_is_verified_nevertheless(tmp_path: Path) -> None:
    with pytest.raises(UnsafeStoreError, match="creators of one object"):
        await joined(Throttled(Overwrites(tmp_path), refused=1))
    assert read_cluster(FolderStore(tmp_path)) is None
