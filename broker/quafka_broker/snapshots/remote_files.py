"""Reads, over the mesh, the files of a cut that a remote broker pins."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile

from quafka_broker.snapshots.cut_files import chunks, tail_of
from quafka_broker.snapshots.mesh_link import MeshLink
from quafka_broker.wal.cut import SegmentCut
from quafka_mesh_ops.ops.snapshots import MAX_READ, ReadOrgPinned, ReadOrgPinnedResp, ReadPinned
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    REWRITTEN,
    decode_row,
    encode_file_header,
    encode_row,
)

_READ_SECONDS = 30.0
_READS_AHEAD = 8
_SPOOL_BYTES = 16 << 20
_SPOOL_ROWS = 8_192


class _RemotePin:
    """A pin of a remote broker, whose files cannot be linked to."""

    def __init__(self, link: MeshLink, pin: str) -> None:
        self._link = link
        self._pin = pin

    def log_path(self, number: int) -> Path | None:
        return None

    def index_path(self, number: int) -> Path | None:
        return None

    def zones(self, segment: SegmentCut) -> bytes | None:
        return None

    def zones_path(self, segment: SegmentCut) -> Path | None:
        return None


class RemoteFiles(_RemotePin):
    """The files of a pin."""

    def log(self, number: int, at: int, size: int) -> bytes:
        return b"".join(self.log_chunks(number, at, size))

    def index(self, number: int, at: int, size: int) -> bytes:
        return b"".join(self._read(number, index=True, at=at, size=size))

    def log_chunks(self, number: int, at: int, size: int) -> Iterator[bytes]:
        return self._read(number, index=False, at=at, size=size)

    def _read(self, number: int, *, index: bool, at: int, size: int) -> Iterator[bytes]:
        """Yield the chunks in order, reading ahead."""
        reading: deque[Future[bytes]] = deque()
        try:
            for start, some in chunks(at, size):
                op = ReadPinned(self._pin, number, index, start, some)
                reading.append(self._link.begin(self._piece(op)))
                if len(reading) == _READS_AHEAD:
                    yield reading.popleft().result()
            while reading:
                yield reading.popleft().result()
        finally:
            for read in reading:
                read.cancel()

    def tail(self, number: int, rows: int) -> bytes:
        return tail_of(self, number, rows)

    async def _piece(self, op: ReadPinned) -> bytes:
        answer = await self._link.call_on_loop(op, _READ_SECONDS)
        if len(answer.data) != op.size:
            raise OSError(f"segment {op.segment} is cut short at the broker")
        return bytes(answer.data)


class RemoteOrgFiles(_RemotePin):
    """One org's entries in the files of a pin. The broker does not send the files themselves."""

    def __init__(self, link: MeshLink, pin: str, org: int) -> None:
        super().__init__(link, pin)
        self._org = org

    def log(self, number: int, at: int, size: int) -> bytes:
        raise OSError("the broker gives only one org's entries")

    def index(self, number: int, at: int, size: int) -> bytes:
        raise OSError("the broker gives only one org's entries")

    def log_chunks(self, number: int, at: int, size: int) -> Iterator[bytes]:
        raise OSError("the broker gives only one org's entries")

    def tail(self, number: int, rows: int) -> bytes:
        return bytes(self._read(ReadOrgPinned(self._pin, number, rows, rows, 0, 0)).tail)

    def org_entries(self, segment: SegmentCut, first_row: int) -> _RemoteOrgEntries:
        return _RemoteOrgEntries(segment, self._answers(segment, first_row))

    def _answers(self, segment: SegmentCut, first_row: int) -> Iterator[ReadOrgPinnedResp]:
        row, skip = first_row, 0
        while row < segment.rows:
            op = ReadOrgPinned(self._pin, segment.number, row, segment.rows, skip, MAX_READ)
            answer = self._read(op)
            if (answer.next_row, answer.next_skip) <= (row, skip):
                raise OSError(f"the broker sent nothing new of segment {segment.number}")
            row, skip = answer.next_row, answer.next_skip
            yield answer

    def _read(self, op: ReadOrgPinned) -> ReadOrgPinnedResp:
        return self._link.call(op, _READ_SECONDS, self._org)


class _RemoteOrgEntries:
    """One org's entries, read from the broker once. The index rows wait in a temporary file."""

    def __init__(self, segment: SegmentCut, answers: Iterator[ReadOrgPinnedResp]) -> None:
        self._segment = segment
        self._answers = answers
        self._first = next((answer for answer in answers if answer.rows), None)
        self._rows = SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115 - closed by close
        self.rows = 0
        self.size = FILE_HEADER_SIZE

    @property
    def is_empty(self) -> bool:
        return self._first is None

    @property
    def expected_size(self) -> int | None:
        return None

    def log(self) -> Iterator[bytes]:
        segment = self._segment
        yield encode_file_header(LOG_MAGIC, segment.number, segment.salt, REWRITTEN)
        received = FILE_HEADER_SIZE
        assert self._first is not None
        for answer in chain([self._first], self._answers):
            data = bytes(answer.rows)
            for at in range(0, len(data), INDEX_ROW_SIZE):
                row = decode_row(data, at)
                self._rows.write(encode_row(row._replace(position=self.size)))
                self.size += ENTRY_HEADER_SIZE + row.length
                self.rows += 1
            received += len(answer.entries)
            yield bytes(answer.entries)
        if received != self.size:
            raise OSError(f"segment {segment.number} is cut short at the broker")

    def index(self) -> Iterator[bytes]:
        self._rows.seek(0)
        while some := self._rows.read(_SPOOL_ROWS * INDEX_ROW_SIZE):
            yield some

    def close(self) -> None:
        self._rows.close()
