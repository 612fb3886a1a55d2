"""Reads the record batches of a `.log` file.

A batch of format 2 and a message of formats 0 and 1 have the length and the format at the same
place. The header of a message is returned as that of a batch; the offset of a compressed message is
that of its last record.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.files import open_file
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    LENGTH_FROM,
    MAGIC,
    PATCHED_SIZE,
    BatchHeader,
    crc32c,
    read_header,
)

BATCH_LIMIT = 256 << 20
"""The maximum bytes of a batch; `message.max.bytes` is 1 MiB by default."""

_START = struct.Struct(">qiib")  # of a batch: offset, length, leader epoch or CRC, format
_MESSAGE = struct.Struct(">qiIbbq")
_LEAST_MESSAGE = {0: 26, 1: 34}
_WINDOW = 64 << 10
_FEW = 1 << 10
_MANY = 1 << 20
_SPARSE = 8
_MESSAGE_CRC_END = 16


class Placed(NamedTuple):
    """The header of a batch, and the batch's position in its file."""

    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + self.header.length


class BatchFile:
    """An open `.log` file. For one thread at a time.

    Only the first `size` bytes are read: later bytes may be torn.
    """

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor
        self._window = memoryview(b"")
        self._window_at = 0

    @property
    def inode(self) -> int:
        """Distinguishes the file from a later one of the same name."""
        return os.fstat(self._descriptor).st_ino

    def header(self, position: int, ahead: int = _FEW) -> BatchHeader:
        """The header of the batch at a position. Does not verify the batch's CRC.

        Raises:
            KafkaLogError: no whole batch begins there.
        """
        data = self._bytes(position, BATCH_HEADER_SIZE, ahead)
        if len(data) < _START.size:
            raise KafkaLogError(self.path, "a batch is cut short", position)
        offset, length, _, magic = _START.unpack_from(data)
        size = length + LENGTH_FROM
        least = BATCH_HEADER_SIZE if magic == MAGIC else _LEAST_MESSAGE.get(magic)
        if least is None or size < least or offset < 0:
            raise KafkaLogError(
                self.path, f"no batch (format {magic}, {size} bytes, offset {offset})", position
            )
        if size > BATCH_LIMIT:
            raise KafkaLogError(self.path, f"a batch of {size} bytes", position)
        if position + size > self.size:
            raise KafkaLogError(self.path, "a batch is cut short", position)
        header = read_header(data) if magic == MAGIC else _of_message(data, size)
        if header.last_offset_delta < 0 or header.last_offset >> 63:
            raise KafkaLogError(self.path, "a batch with impossible offsets", position)
        return header

    def walk(self, position: int, *, verify: bool = False) -> Iterator[Placed]:
        """Iterate over the batches from a position to the end.

        With `verify` all bytes are read and checked.

        Raises:
            KafkaLogError: no whole batch begins at a position, its offsets do not ascend, or its
                CRC does not match.
        """
        after, sizes = -1, 0
        while position < self.size:
            # A window is worthwhile only if several batches are in it.
            ahead = _MANY if verify else _WINDOW if sizes < _WINDOW // _SPARSE else _FEW
            header = self.header(position, ahead)
            if header.last_offset < after:
                raise KafkaLogError(self.path, f"offset {header.last_offset} again", position)
            if verify:
                batch = self._bytes(position, header.length, ahead)[: header.length]
                self.check(position, header, batch)
            yield Placed(position, header)
            after, sizes = header.last_offset + 1, header.length
            position += header.length

    def read(self, position: int, size: int) -> list[tuple[Placed, memoryview]]:
        """Read verified batches from a position on: at most `size` bytes, but at least one batch.

        Raises:
            KafkaLogError: as `walk`, for the first batch; a later one ends the list.
        """
        first = self.header(position)
        data = self._read(position, min(max(size, first.length), self.size - position))
        found: list[tuple[Placed, memoryview]] = []
        at = 0
        while at < len(data):
            try:
                header = self._header_in(data, position, at)
                if header is None:
                    break
                batch = data[at : at + header.length]
                self.check(position + at, header, batch)
            except KafkaLogError:
                if not found:
                    raise
                break
            found.append((Placed(position + at, header), batch))
            at += header.length
        return found

    def _header_in(self, data: memoryview, position: int, at: int) -> BatchHeader | None:
        """The header of a batch in a window; None if the batch continues after the window."""
        self._window, self._window_at = data, position
        header = self.header(position + at) if len(data) - at >= _START.size else None
        return None if header is None or at + header.length > len(data) else header

    def check(self, position: int, header: BatchHeader, batch: memoryview) -> None:
        """Raise KafkaLogError if the batch's CRC does not match."""
        if header.magic == MAGIC:
            found = crc32c(batch[PATCHED_SIZE:])
        else:
            found = zlib.crc32(batch[_MESSAGE_CRC_END:])
        if found != header.crc:
            raise KafkaLogError(self.path, "a batch does not match its CRC", position)

    def _bytes(self, position: int, size: int, ahead: int) -> memoryview:
        """Read bytes from a position on: at least `size`, or fewer at the end."""
        at = position - self._window_at
        if at < 0 or at + size > len(self._window):
            size = min(max(size, ahead), self.size - position)
            self._window, self._window_at, at = self._read(position, size), position, 0
        return self._window[at:]

    def _read(self, position: int, size: int) -> memoryview:
        try:
            data = os.pread(self._descriptor, max(size, 0), position)
        except OSError as e:
            raise KafkaLogError(self.path, e.strerror or str(e), position) from e
        return memoryview(data)


def _of_message(data: memoryview, size: int) -> BatchHeader:
    offset, _, crc, magic, attributes, timestamp = _MESSAGE.unpack_from(data)
    time = timestamp if magic else -1
    return BatchHeader(
        offset, size, -1, magic, crc, attributes & 0x0F, 0, time, time, -1, -1, -1, 1
    )


@contextmanager
def open_batches(path: Path, size: int | None = None) -> Generator[BatchFile]:
    """Open a file, of which the first `size` bytes are read; None: all.

    Raises:
        KafkaLogError: it cannot be opened, or has fewer bytes.
    """
    try:
        descriptor = open_file(path)
    except FileNotFoundError as e:
        raise KafkaLogError(path, e.strerror or str(e)) from e
    try:
        present = os.fstat(descriptor).st_size
        if size is not None and present < size:
            raise KafkaLogError(path, f"{present} bytes instead of {size}")
        yield BatchFile(path, descriptor, present if size is None else size)
    finally:
        os.close(descriptor)
