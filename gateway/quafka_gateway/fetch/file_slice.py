"""Record batches that stay in the log's files of a broker on this host.

A `FileSlice` takes the place of a batch's bytes where only its length and its offsets are needed:
in answers, in the cache, and in responses, whose writer has the kernel send it
(`edge/file_sender.py`). It is not a buffer: whatever needs the bytes must read them (`in_memory`),
or fails at once.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TypeGuard, cast

from quafka_loop import threads
from quafka_mesh_ops.ops.base import Buffer
from quafka_proto import records

_SAMPLE = 128 << 10  # what the system reads ahead; it keeps and drops pages by the run
_HEAD = 16 << 10


class ShortFileError(OSError):
    """A file ends before bytes that the broker has named, or its descriptor was revoked."""


class LogFile:
    """A log file, by the descriptor that the broker has handed over. Its bytes never change.

    Any thread may read; a descriptor in use is closed after its last use.
    """

    __slots__ = ("_closed", "_fd", "_lock", "_uses", "key")

    def __init__(self, key: str, fd: int) -> None:
        self.key = key
        self._fd = fd
        self._uses = 0
        self._closed = False
        self._lock = threads.Lock()

    def close(self) -> None:
        """Allow no more use."""
        with self._lock:
            self._closed = True
        self._shut_if_unused()

    @contextmanager
    def used(self) -> Generator[int]:
        """The descriptor, which stays open meanwhile. Raises ShortFileError: see `acquire`."""
        fd = self.acquire()
        try:
            yield fd
        finally:
            self.release()

    def acquire(self) -> int:
        """The descriptor, which stays open until `release`.

        Raises:
            ShortFileError: it was closed.
        """
        with self._lock:
            if self._closed:
                raise ShortFileError(f"the descriptor of {self.key} was closed")
            self._uses += 1
            return self._fd

    def release(self) -> None:
        """End a use of the descriptor."""
        with self._lock:
            self._uses -= 1
        if self._closed:
            self._shut_if_unused()

    def read(self, position: int, size: int) -> bytes:
        """Read bytes. Blocks.

        Raises:
            ShortFileError: they are not there, or the descriptor was closed.
            OSError: the file cannot be read.
        """
        with self.used() as fd:
            found = os.pread(fd, size, position)
        if len(found) < size:
            raise ShortFileError(f"{self.key} ends before position {position + size}")
        return found

    def read_cached(self, position: int, size: int) -> bytearray | None:
        """Read bytes if the page cache has them all; otherwise None. Raises ShortFileError."""
        buffer = bytearray(size)
        with self.used() as fd:
            try:
                count = os.preadv(fd, [buffer], position, os.RWF_NOWAIT)
            except OSError:  # `read` reports what is wrong, if anything is
                return None
        return buffer if count == size else None

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the page cache has these bytes, as far as a byte in each 128 KiB shows.

        Raises ShortFileError.
        """
        probe = bytearray(1)
        with self.used() as fd:
            try:
                for at in range(position, position + size, _SAMPLE):
                    os.preadv(fd, [probe], at, os.RWF_NOWAIT)
            except OSError:
                return False
        return True

    def _shut_if_unused(self) -> None:
        with self._lock:
            fd = self._fd
            if not self._closed or self._uses or fd < 0:
                return
            self._fd = -1
        os.close(fd)


class FileSlice:
    """One record batch in a log file.

    Attributes:
        position, size: its bytes in the file.
        base_offset, end_offset: its offsets.
        warm_until: loop time until which the page cache is taken to have it.
    """

    __slots__ = ("base_offset", "end_offset", "file", "position", "size", "warm_until")

    def __init__(
        self, file: LogFile, position: int, size: int, base_offset: int, end_offset: int
    ) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.warm_until = 0.0

    def __len__(self) -> int:
        return self.size


def as_batches(slices: Sequence[FileSlice]) -> list[Buffer]:
    """The slices as the records of an answer."""
    return cast("list[Buffer]", slices)


def is_in_file(batch: object) -> TypeGuard[FileSlice]:
    """Whether a batch of an answer, or a piece of a response, is not in memory."""
    return isinstance(batch, FileSlice)


def base_offset(batch: Buffer) -> int:
    """The offset of a batch's first record."""
    return batch.base_offset if is_in_file(batch) else records.base_offset(batch)


def end_offset(batch: Buffer) -> int:
    """The offset after a batch's last record."""
    return batch.end_offset if is_in_file(batch) else records.end_offset(batch)


def in_memory(batches: Sequence[Buffer]) -> list[Buffer]:
    """The batches, as bytes. Blocks.

    Raises:
        OSError: a file cannot be read.
    """
    return [
        batch.file.read(batch.position, batch.size) if is_in_file(batch) else batch
        for batch in batches
    ]


def first_bytes(batch: Buffer) -> Buffer:
    """The beginning of a batch, if it is in memory or in the page cache; otherwise nothing."""
    if not is_in_file(batch):
        return batch
    try:
        return batch.file.read_cached(batch.position, min(batch.size, _HEAD)) or b""
    except ShortFileError:
        return b""


def file_bytes(pieces: Sequence[Buffer]) -> int:
    """How many bytes of these are not in memory."""
    return sum(len(piece) for piece in pieces if is_in_file(piece))
