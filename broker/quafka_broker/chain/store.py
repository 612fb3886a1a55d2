"""The methods of an object store that the chain awaits; implemented by `AsyncObjectStore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quafka_objects.store import Buffer, ETag, ObjectInfo, StoredObject


class ChainStore(Protocol):
    """The methods of an `AsyncObjectStore` that the chain calls; see `quafka_objects.store`.

    The chain relies on three guarantees: of several creators of a path one succeeds; `replace`
    compares and swaps in one step; reads and listings see every write that has returned. A call
    that fails or times out may still take effect, at any later time, even twice.
    """

    async def read(self, path: str, start: int = 0, length: int | None = None) -> bytes: ...

    async def get(self, path: str) -> StoredObject: ...

    async def create(self, path: str, data: Buffer) -> ETag: ...

    async def replace(self, path: str, data: Buffer, expected: ETag) -> ETag: ...

    async def delete(self, path: str) -> None: ...

    async def list_objects(self, folder: str = "", after: str = "") -> Sequence[ObjectInfo]: ...
