"""A file of a folder over a store: local, an object, or both."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from quafka_broker.chain.object_reader import ObjectReader, StoredRange
from quafka_broker.wal.disk import Buffer, File
from quafka_proto.chain_format import StoredFile, header_in_path
from quafka_proto.log_format import FILE_HEADER_SIZE, INDEX_MAGIC, LOG_MAGIC, encode_file_header

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")


class FileContent:
    """A file, independent of its name; its content is local, in an object, or both.

    Attributes:
        name: its name in the folder; None: the name was removed, or the file is being made.
        local: the local file; None: only the object has the content.
        stored: the object with this content; None: there is none, or no longer.
        chained: the chain has its content: it belongs to the active segment, or to a sealed one
            that is not an object yet. Its syncs do nothing.
        kept_local: it is never uploaded.
        used: when the local copy was last read, in ticks of `Folder.tick`.
    """

    __slots__ = ("chained", "head", "kept_local", "local", "name", "stored", "used")

    def __init__(
        self, name: str, local: File | None = None, stored: StoredFile | None = None
    ) -> None:
        self.name: str | None = name
        self.local = local
        self.stored: StoredFile | None = None
        self.head: bytes | None = None
        self.chained = self.kept_local = False
        self.used = 0
        if stored is not None:
            self.save(stored)

    def save(self, stored: StoredFile) -> None:
        """Record that an object has the content."""
        self.head = _head_of(stored)
        self.stored = stored

    @property
    def size(self) -> int:
        """Bytes of the file."""
        local, stored = self.local, self.stored
        if stored is not None:
            return stored.size
        assert local is not None, "it is somewhere"
        return local.size()


def _head_of(stored: StoredFile) -> bytes | None:
    """The header of a segment's file, made from the path of its object: no request is needed."""
    stem, _, suffix = stored.name.partition(".")
    magic = {"log": LOG_MAGIC, "oidx": INDEX_MAGIC}.get(suffix)
    header = header_in_path(stored.path)
    if magic is None or header is None or not stem.isdecimal():
        return None
    return encode_file_header(magic, int(stem), *header)


class Folder(Protocol):
    """The part of a folder that its files need."""

    reader: ObjectReader

    def change(self, node: FileContent) -> File:
        """The local file, before a change, after which the object no longer has the content."""
        ...

    def with_room(self, write: Callable[[], T]) -> T:
        """Run a write, and repeat it while the disk is full and the cache can free space."""
        ...

    def save(self, node: FileContent) -> None:
        """Make the content durable."""
        ...

    def tick(self) -> int:
        """A number above all earlier ones."""
        ...


class StoreFile:
    """A handle. The content stays readable while the object exists, whatever the file's name."""

    def __init__(self, folder: Folder, node: FileContent) -> None:
        self._folder = folder
        self.node = node

    def append(self, buffers: Sequence[Buffer]) -> None:
        local = self._folder.change(self.node)
        size = local.size()
        try:
            local.append(buffers)
        except OSError as e:
            if e.errno not in NO_ROOM:
                raise
            self._append_again(local, size, buffers)

    def _append_again(self, local: File, size: int, buffers: Sequence[Buffer]) -> None:
        def append() -> None:
            local.truncate(size)
            local.append(buffers)

        self._folder.with_room(append)

    def read(self, position: int, size: int) -> bytes:
        node = self.node
        local, stored = node.local, node.stored
        if local is not None:
            try:
                data = local.read(position, size)
            except OSError:
                if stored is None:
                    raise
            else:
                node.used = self._folder.tick()
                return data
        assert stored is not None, "it is somewhere"
        if node.head is not None and not position and size == FILE_HEADER_SIZE:
            return node.head
        return self._folder.reader.read(_range_of(stored), position, size)

    def read_cached(self, position: int, size: int) -> bytearray | None:
        node = self.node
        local, stored = node.local, node.stored
        if local is not None:
            node.used = self._folder.tick()
            return local.read_cached(position, size)
        assert stored is not None, "it is somewhere"
        return self._folder.reader.read_cached(_range_of(stored), position, size)

    def will_read(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Request all missing blocks at once: the store is slow, but answers in parallel."""
        stored = self.node.stored
        if stored is not None and self.node.local is None:
            self._folder.reader.request(_range_of(stored), ranges)

    def write_back(self) -> None:
        """Do nothing: the local file need not be durable."""

    def sync(self) -> None:
        self._folder.save(self.node)

    def truncate(self, size: int) -> None:
        if size != self.node.size:
            self._folder.change(self.node).truncate(size)

    def size(self) -> int:
        return self.node.size

    def object_path(self) -> str | None:
        """See `wal.disk.FileInStore`."""
        stored = self.node.stored
        return None if stored is None else stored.path

    def close(self) -> None:
        """Do nothing: several handles share a local file, which is closed with the last of them."""


def _range_of(stored: StoredFile) -> StoredRange:
    return StoredRange(stored.path, stored.size)
