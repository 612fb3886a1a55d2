"""The interface of an object store.

Paths are relative to the store's root, with `/` between their parts. A reader sees an object whole
or not at all. All methods block, and may be called from any thread; all of them raise OSError, and
the subclasses in `errors` where a caller can act on the reason. `AsyncObjectStore` is for asyncio.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview

ETag = str
"""Stands for the bytes that an object had when it was read or written; opaque."""


PART_BYTES = 8 << 20
"""A larger object is put in parts of this size."""


class ObjectInfo(NamedTuple):
    """An object in a listing."""

    path: str
    size: int


class StoredObject(NamedTuple):
    """An object's bytes, and the ETag to replace it by."""

    data: bytes
    etag: ETag


class ObjectStore(ABC):
    """Objects below one root."""

    where: str
    """The root as a path or URL, for messages."""

    @property
    @abstractmethod
    def is_remote(self) -> bool:
        """Whether a read costs a round trip: then small gaps are cheaper to read than to skip."""

    # --- reads --------------------------------------------------------------------------------

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """A range of an object, up to its end by default; fewer bytes where the object ends.

        Raises:
            ObjectNotFoundError: no object has this path.
        """

    @abstractmethod
    def view(self, path: str, start: int = 0, length: int | None = None) -> memoryview:
        """The same range without a copy where the store allows it. The object must not shrink.

        Raises:
            ObjectNotFoundError: no object has this path.
        """

    @abstractmethod
    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several ranges of an object, each a start and a length, read in parallel.

        Raises:
            ObjectNotFoundError: no object has this path.
        """

    @abstractmethod
    def get(self, path: str) -> StoredObject:
        """An object with its ETag.

        Raises:
            ObjectNotFoundError: no object has this path.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether an object has this path."""

    @abstractmethod
    def list_objects(self, folder: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """The objects below a folder, in the order of their paths, from the one after `after` on.

        A missing folder is an empty one. An interrupted write to a local folder leaves a file
        `.<name>.<number>.part`, which is listed, so that it can be deleted: see
        `folder.final_path`.
        """

    @abstractmethod
    def list_folders(self, folder: str) -> list[str]:
        """The names of the folders directly below a folder, sorted; none in a missing one."""

    # --- writes: durable when they return -----------------------------------------------------

    @abstractmethod
    def put(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        """Write an object, in place of the one that has this path. Chunks are streamed."""

    @abstractmethod
    def create(self, path: str, data: Buffer) -> ETag:
        """Write an object that does not exist yet: of several creators exactly one succeeds.

        A store may write the object and lose the answer, and refuse the retry. So an object with
        exactly these bytes counts as created. Callers that race put a nonce into the data.

        Raises:
            ObjectExistsError: an object with other bytes has this path.
        """

    @abstractmethod
    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        """Compare and swap: write an object in place of the one that has the ETag `expected`.

        As with `create`, an object that already has exactly these bytes counts as replaced.

        Raises:
            ObjectChangedError: the object has another ETag, or does not exist.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete an object. A missing one is no error."""
