"""Builds one record batch of format 2, record by record; offsets may have gaps.

Optimized for the loop over all entries of a read, which determines how fast a stream is read:
varints come from tables, and nothing is encoded twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from quafka_broker.sources.redis.fields import Header
from quafka_proto.primitives import write_varint
from quafka_proto.records import BATCH_HEADER_SIZE, BatchHeader, assemble

MAX_SPAN = (1 << 31) - 1
"""The highest offset delta of a record, and of a batch's end."""


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_SHORT = 1 << 13
_VARINTS = [_varint(value) for value in range(_SHORT)]
_BITS = 14
_MASK = (1 << _BITS) - 1
_FIRST = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(1 << _BITS)]
"""The first 14 bits of a longer varint."""
_LAST = [bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(1 << _BITS)]
"""The last 14 bits."""
_NULL = _varint(-1)
_NO_HEADERS = _varint(0)


def varint(value: int) -> bytes:
    """Kafka's zigzag varint."""
    if 0 <= value < _SHORT:
        return _VARINTS[value]
    bits = value << 1
    if 0 < bits < 1 << 2 * _BITS:
        return _FIRST[bits & _MASK] + _LAST[bits >> _BITS]
    if 0 < bits < 1 << 3 * _BITS:
        low, middle = bits & _MASK, bits >> _BITS & _MASK
        return _FIRST[low] + _FIRST[middle] + _LAST[bits >> 2 * _BITS]
    return _varint(value)


class BatchBuilder:
    """The records of one batch.

    Attributes:
        base: the base offset: `start`, or the first record's offset if that is too far from it.
        size: bytes of the batch.
        count: the number of records.
    """

    __slots__ = ("_base_time", "_epoch", "_last", "_newest", "_pieces", "base", "count", "size")

    def __init__(self, start: int, leader_epoch: int) -> None:
        self._epoch = leader_epoch
        self._pieces: list[bytes] = []
        self._last = self._base_time = self._newest = 0
        self.base = start
        self.count = 0
        self.size = BATCH_HEADER_SIZE

    def record(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> bytes:
        """Encode a record for the next `append`."""
        if not self.count:
            self._base_time = timestamp
            if not 0 <= offset - self.base <= MAX_SPAN:
                self.base = offset
        head = b"\0" + varint(timestamp - self._base_time) + varint(offset - self.base)
        head += _NULL if key is None else varint(len(key)) + key
        tail = b"".join(_encoded_headers(headers)) if headers else _NO_HEADERS
        if value is None:
            size = len(head) + len(_NULL) + len(tail)
            return b"".join((varint(size), head, _NULL, tail))
        length = varint(len(value))
        size = len(head) + len(length) + len(value) + len(tail)
        return b"".join((varint(size), head, length, value, tail))

    def append(self, record: bytes, offset: int, timestamp: int) -> None:
        """Append the result of `record` for this offset and timestamp."""
        self._pieces.append(record)
        self.size += len(record)
        self.count += 1
        self._last = offset
        if timestamp > self._newest or self.count == 1:
            self._newest = timestamp

    def build(self) -> bytes:
        """The whole batch."""
        header = BatchHeader(
            base_offset=self.base,
            length=0,
            leader_epoch=self._epoch,
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=self._last - self.base,
            base_timestamp=self._base_time,
            max_timestamp=self._newest,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=self.count,
        )
        return bytes(assemble(header, b"".join(self._pieces)))


def _encoded_headers(headers: Sequence[Header]) -> list[bytes]:
    parts = [varint(len(headers))]
    for name, content in headers:
        parts += (varint(len(name)), name)
        parts += (_NULL,) if content is None else (varint(len(content)), content)
    return parts
