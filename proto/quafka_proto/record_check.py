"""Checks the records of a batch against its header, like Kafka's LogValidator.

The checks: the number of records, the lengths of records, keys, values and headers, offset deltas
0, 1, 2, ..., timestamps of 64 bits, and no bytes after the last record. As in Kafka, the unused
attributes of a record may have any value, and header names need not be UTF-8.

Records of equal layout are checked together (`record_runs`). A few others are checked one by one.
Of many others, Python reads only the lengths, and numpy reads the other fields of thousands of
records at once (`record_columns`, imported when the first such batch arrives). Records that numpy
rejects are checked again one by one, so that errors come from one place. The window of records that
are checked at a time bounds the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from quafka_proto.compression import DECOMPRESSED_LIMIT, TooLarge, decompress
from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.message import Buffer
from quafka_proto.primitives import read_varint
from quafka_proto.record_runs import Body, run_from
from quafka_proto.records import BATCH_HEADER_SIZE, LEAST_RECORD, BatchHeader, read_header

FEW = 100
"""The maximum number of records that are checked one by one: numpy is slower for so few."""
WINDOW = 4_096
"""Records that are checked at a time, in about half a millisecond."""
_PAUSE_RECORDS, _PAUSE_HEADERS = 512, 2_048
_TIMESTAMP_RANGE = 1 << 63
_NO_TIMESTAMP = -1
_ONE_BYTE = 64  # smaller numbers have a varint of one byte
_NULL = 1  # a length of -1, as a varint


class Checked(NamedTuple):
    """Facts about the records of a valid batch.

    Attributes:
        oldest: the lowest timestamp, or -1 if a record has none.
        newest: the highest timestamp.
        keyless: whether a record has no key, which compacted topics refuse.
    """

    oldest: int
    newest: int
    keyless: bool


class _Columns(Protocol):
    """The module `record_columns`; it needs numpy."""

    def check(
        self, data: Body, starts: list[int], end: int, first: int, stop: int
    ) -> tuple[int, int, bool] | None: ...


@dataclass(slots=True)
class Effort:
    """The work that a check may do before it raises TooLongError.

    Attributes:
        headers: the record headers that it may still check.
        vectors: whether it may import numpy, which takes 150 ms.
        pause: called after about every half millisecond of Python. A thread releases the
            interpreter there: otherwise each system call of the event loop would cost 5 ms.
    """

    headers: int = 1 << 62
    vectors: bool = True
    pause: Callable[[], None] | None = None


class TooLongError(Exception):
    """The check would exceed its `Effort`."""


_columns: _Columns | None = None


def vectors_loaded() -> bool:
    """Whether numpy has been imported for checks."""
    return _columns is not None


def check_records(batch: Buffer, limit: int = DECOMPRESSED_LIMIT) -> Checked:
    """Check all records of a batch, which may be compressed, but not its CRC.

    Raises:
        BatchError: as `check_body`; CORRUPT_MESSAGE if the batch is cut short, INVALID_RECORD if
            it does not decompress, MESSAGE_TOO_LARGE if it decompresses to more than `limit`
            bytes.
    """
    try:
        header = read_header(batch)
    except Malformed as e:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, str(e)) from e
    if not BATCH_HEADER_SIZE <= header.length <= len(batch):
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"batch length {header.length} does not fit")
    packed = memoryview(batch)[BATCH_HEADER_SIZE : header.length]
    try:
        data = decompress(header.codec, packed, limit)
    except TooLarge as e:
        raise BatchError(ErrorCode.MESSAGE_TOO_LARGE, str(e)) from e
    except Malformed as e:
        raise BatchError(ErrorCode.INVALID_RECORD, str(e)) from e
    body = bytes(data) if isinstance(data, memoryview) else data
    return check_body(header, body, 0, len(body))


def check_body(
    header: BatchHeader, data: Body, start: int, end: int, effort: Effort | None = None
) -> Checked:
    """Check the uncompressed records in `data[start:end]` of a batch with this header.

    The caller compares the header's max timestamp with the newest one: Kafka corrects it.

    Raises:
        BatchError: INVALID_RECORD; INVALID_TIMESTAMP if a timestamp does not fit 64 bits.
        TooLongError: the check exceeds the effort.
    """
    count = header.record_count
    if not 0 < count * LEAST_RECORD <= end - start:
        raise BatchError(ErrorCode.INVALID_RECORD, f"{end - start} bytes are not {count} records")
    check = _Check(data, end, effort or Effort())
    at = check.all(start, count)
    if at != end:
        raise BatchError(ErrorCode.INVALID_RECORD, f"{end - at} bytes follow the last record")
    oldest, newest = header.base_timestamp + check.oldest, header.base_timestamp + check.newest
    if not -_TIMESTAMP_RANGE <= oldest <= newest < _TIMESTAMP_RANGE:
        raise BatchError(ErrorCode.INVALID_TIMESTAMP, f"timestamps from {oldest} to {newest}")
    return Checked(oldest, newest, check.keyless)


def out_of_range(
    header: BatchHeader, data: Body, start: int, oldest: int, newest: int
) -> Iterator[tuple[int, int]]:
    """The index and timestamp of each record with a timestamp outside the range.

    The records must have been checked.
    """
    at = start
    for index in range(header.record_count):
        size, at = read_varint(data, at)
        delta, _ = read_varint(data, at + 1)
        timestamp = header.base_timestamp + delta
        if timestamp != _NO_TIMESTAMP and not oldest <= timestamp <= newest:
            yield index, timestamp
        at += size


def without_key(header: BatchHeader, data: Body, start: int) -> Iterator[int]:
    """The index of each record without a key. The records must have been checked."""
    at = start
    for index in range(header.record_count):
        size, at = read_varint(data, at)
        _, key = read_varint(data, at + 1)
        _, key = read_varint(data, key)
        if data[key] & _NULL:
            yield index
        at += size


class _Check:
    """The check of one batch, with the facts about its records so far."""

    def __init__(self, data: Body, end: int, effort: Effort) -> None:
        self.oldest, self.newest = _TIMESTAMP_RANGE, -_TIMESTAMP_RANGE
        self.keyless = False
        self._data = data
        self._end = end
        self._effort = effort

    def all(self, at: int, count: int) -> int:
        """Check all records. Returns the position after them."""
        done = paused = 0
        while done < count:
            if done - paused >= WINDOW:
                self._pause()
                paused = done
            run = run_from(self._data, at, self._end, done, count - done)
            if run is not None:
                self.oldest = min(self.oldest, run.oldest)
                self.newest = max(self.newest, run.newest)
                self.keyless |= run.keyless
                at, done = run.end, done + run.records
                continue
            some = min(count - done, WINDOW)
            at = self._one_by_one(at, done, some) if count <= FEW else self._window(at, done, some)
            done += some
        return at

    def _window(self, at: int, first: int, count: int) -> int:
        """Check `count` records of various layouts. Returns the position after them."""
        columns = self._load()
        starts, stop = _walk(self._data, at, count)
        found = None
        if len(starts) == count and stop <= self._end:
            found = columns.check(self._data, starts, stop, first, self._end)
        if found is None:  # a record is invalid, or must be checked by itself
            return self._one_by_one(at, first, count)
        self.oldest, self.newest = min(self.oldest, found[0]), max(self.newest, found[1])
        self.keyless |= found[2]
        return stop

    def _pause(self) -> None:
        if self._effort.pause is not None:
            self._effort.pause()

    def _load(self) -> _Columns:
        global _columns  # noqa: PLW0603 - the import costs 150 ms and 11 MB, once
        if _columns is None:
            if not self._effort.vectors:
                raise TooLongError
            _columns = cast("_Columns", import_module("quafka_proto.record_columns"))
        return _columns

    def _one_by_one(self, at: int, first: int, count: int) -> int:
        """Check `count` records. Returns the position after them.

        Raises:
            BatchError: INVALID_RECORD, with the number of the record.
        """
        expected = first - 1
        try:
            for expected in range(first, first + count):
                if expected % _PAUSE_RECORDS == _PAUSE_RECORDS - 1:
                    self._pause()
                at = self._one(at, expected)
        except (Malformed, IndexError) as e:
            reason = "it is cut short" if isinstance(e, IndexError) else e
            raise BatchError(ErrorCode.INVALID_RECORD, f"record {expected}: {reason}") from e
        return at

    def _one(self, at: int, expected: int) -> int:
        """Check one record. Returns the position after it.

        Most fields have one or two bytes; reading them here is faster than a call.
        """
        data = self._data
        size = data[at]
        if size < 0x80:
            at += 1
        elif data[at + 1] < 0x80:
            size = size & 0x7F | data[at + 1] << 7
            at += 2
        else:
            size, at = _long_size(data, at)
        end = at + (size >> 1)
        timestamp = data[at + 1]  # after the unused attributes
        if timestamp < 0x80:
            timestamp = timestamp >> 1 ^ -(timestamp & 1)
            at += 2
        else:
            timestamp, at = read_varint(data, at + 1)
        if not self.oldest <= timestamp <= self.newest:
            self.oldest, self.newest = min(self.oldest, timestamp), max(self.newest, timestamp)
        if expected < _ONE_BYTE and data[at] == expected << 1:
            at += 1
        else:
            at = _skip_delta(data, at, expected)
        if data[at] & _NULL:  # a valid length with this bit is -1, in one byte or in more
            self.keyless = True
        at = at + 1 if data[at] == _NULL else _skip_bytes(data, at)
        at = at + 1 if data[at] == _NULL else _skip_bytes(data, at)
        at = self._skip_headers(at, end) if data[at] else at + 1
        if at != end or at > self._end or size & 1:
            raise Malformed("it does not match its length field")
        return at

    def _skip_headers(self, at: int, end: int) -> int:
        data = self._data
        count, at = read_varint(data, at)
        if not 0 <= 2 * count <= end - at:
            raise Malformed(f"{count} headers")
        self._effort.headers -= count
        if self._effort.headers < 0:
            raise TooLongError
        for number in range(count):
            if not number % _PAUSE_HEADERS:
                self._pause()
            size, at = read_varint(data, at)
            if size < 0:
                raise Malformed("a header has no name")
            at = _skip_bytes(data, at + size)
            if at > end:
                raise Malformed("a header does not fit")
        return at


def _long_size(data: Body, at: int) -> tuple[int, int]:
    """A record's length, doubled like the raw varint, and the position after it."""
    size, at = read_varint(data, at)
    if size < 0:
        raise Malformed(f"a length of {size} bytes")
    return size << 1, at


def _skip_delta(data: Body, at: int, expected: int) -> int:
    delta, at = read_varint(data, at)
    if delta != expected:
        raise Malformed(f"its offset delta is {delta}, not {expected}")
    return at


def _skip_bytes(data: Body, at: int) -> int:
    size = data[at]
    if not size & 1:
        if size < 0x80:
            return at + 1 + (size >> 1)
        more = data[at + 1]
        if more < 0x80:
            return at + 2 + ((size & 0x7F | more << 7) >> 1)
    size, at = read_varint(data, at)
    if size < -1:
        raise Malformed(f"a key or value of {size} bytes")
    return at + max(size, 0)


def _walk(data: Body, at: int, most: int) -> tuple[list[int], int]:
    """The starts of at most `most` records in the bytes, and the position after them."""
    starts: list[int] = []
    append = starts.append
    try:
        for _ in range(most):
            append(at)
            size = data[at]
            if size < 0x80:
                at += 1 + (size >> 1)
                continue
            more = data[at + 1]
            if more < 0x80:
                at += 2 + ((size & 0x7F | more << 7) >> 1)
            else:
                length, at = read_varint(data, at)
                at += max(length, 0)
    except (IndexError, Malformed):
        starts.pop()
    return starts, at
