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
"""Opaque; identifies the bytes that an object had when it was read or written."""


PART_BYTES = 8 << 20
"""Larger objects are put in parts of this size."""


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
        """Read a range of an object, up to its end by default; shorter where the object ends.

        Raises:
            ObjectNotFoundError: no object has this path.
        """

    @abstractmethod
    def view(self, path: str, start: int = 0, length: int | None = None) -> memoryview:
        """Read a range without a copy where the store allows it. The object must not shrink.

        Raises:
            ObjectNotFoundError: no object has this path.
        """

    @abstractmethod
    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several ranges of an object, each a start and a length, in parallel.

        Raises:
            ObjectNotFoundError: no object has this path.
        """

    @abstractmethod
    def get(self, path: str) -> StoredObject:
        """Read an object and its ETag.

        Raises:
            ObjectNotFoundError: no object has this path.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether an object has this path."""

    @abstractmethod
    def list_objects(self, folder: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """The objects below a folder whose paths follow `after`, in the order of their paths.

        A missing folder counts as empty. An interrupted write to a local folder leaves a file
        `.<name>.<number>.part`, which is listed, so that it can be deleted: see
        `folder.final_path`.
        """

    @abstractmethod
    def list_folders(self, folder: str) -> list[str]:
        """The sorted names of the folders directly below a folder; none if it is missing."""

    # --- writes: durable when they return -----------------------------------------------------

    @abstractmethod
    def put(self, path: str, data: Buffer | Iterable[Buffer]) -> None:
        """Write an object, replacing any object with this path. Chunks are streamed."""

    @abstractmethod
    def create(self, path: str, data: Buffer) -> ETag:
        """Write an object that does not exist yet. Of several creators exactly one succeeds.

        A store may write the object, lose the answer and refuse the retry. So an object with
        exactly these bytes counts as created. Callers that race put a nonce into the data.

        Raises:
            ObjectExistsError: an object with other bytes has this path.
        """

    @abstractmethod
    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        """Compare and swap: replace the object if its ETag is still `expected`.

        As with `create`, an object that already has exactly these bytes counts as replaced.

        Raises:
            ObjectChangedError: the object has another ETag, or does not exist.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete an object. A missing object is no error."""
