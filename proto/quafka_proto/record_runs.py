"""Checks records of equal layout together: a field's bytes in all of them are one strided slice.

Records whose keys and values have the same lengths differ only in their timestamps, offset deltas,
keys and values, until one of the numbers needs another byte. Such a run is checked with a few
comparisons of byte strings, each of which covers all its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

Body = bytes | bytearray | memoryview
"""Uncompressed records. A memoryview is slower to read byte by byte."""

LEAST = 16
"""The minimum records of a run: the check of a run costs as much as that of 16 records."""
MOST = 4_096
"""Records that are checked at a time."""
_LONGEST = 9
"""Bytes of a varint. Longer ones are left to the check of single records."""
_BLOCK = 1 << 13
"""The number of values of a varint of two bytes."""

_LOW = bytes(range(0, 0x80, 2)) * (_BLOCK // 64)
"""For each number of a block, the lowest seven bits of its varint, zigzag-encoded."""
_HIGH = b"".join(bytes((high,)) * 64 for high in range(_BLOCK // 64))
"""For each number of a block, the next seven bits."""
_CONTINUED = 0x80
_MORE = bytes(byte | _CONTINUED for byte in range(0x80)) * 2
"""Translates a byte of a varint to one that is followed by another."""
_LOW_MORE, _HIGH_MORE = _LOW.translate(_MORE), _HIGH.translate(_MORE)
_EVEN = bytes(range(0, 0x100, 2))
_WITH_MORE = bytes(range(_CONTINUED, 0x100))


class RecordRun(NamedTuple):
    """Checked records: their number, the position after them, timestamp deltas, whether keyless."""

    records: int
    end: int
    oldest: int
    newest: int
    keyless: bool


class _Layout(NamedTuple):
    """The positions of a record's fields from its first byte on."""

    size: int
    timestamp: range
    delta: range
    lengths: tuple[int, ...]
    """The bytes that must be equal in all records: lengths, and the number of headers."""
    keyless: bool


def run_from(data: Body, at: int, end: int, first: int, most: int) -> RecordRun | None:
    """Check records that begin at `at` and have the layout of the first one.

    They are at most `most`, and have the offset deltas from `first` on. None: the run is short, or
    a record must be checked by itself, and may be invalid.
    """
    if most < LEAST:
        return None
    try:
        layout = _layout(data, at, end)
    except IndexError:
        return None
    if layout is None or layout.size > end - at:
        return None
    records = min(most, MOST, (end - at) // layout.size, _room(first))
    for place in layout.lengths:
        if records < LEAST:
            return None
        column = _column(data, at + place, layout.size, records)
        records -= len(column.lstrip(column[:1]))
    if records < LEAST:
        return None
    deltas = [_column(data, at + place, layout.size, records) for place in layout.delta]
    if tuple(deltas) != _expected(first, records):
        return None
    times = _times([_column(data, at + place, layout.size, records) for place in layout.timestamp])
    return times and RecordRun(records, at + records * layout.size, *times, layout.keyless)


def _layout(data: Body, at: int, end: int) -> _Layout | None:
    """The layout of a record without headers; None for any other. Raises IndexError."""
    size, place = _number(data, at)
    stop = place + size
    timestamp = range(place + 1 - at, _after(data, place + 1) - at)
    delta = range(timestamp.stop, _after(data, at + timestamp.stop) - at)
    lengths = [*range(place - at)]
    place = at + delta.stop
    keyless = _number(data, place)[0] < 0
    for _ in range(2):  # key and value
        length, after = _number(data, place)
        if length < -1:
            return None
        lengths += range(place - at, after - at)
        place = after + max(length, 0)
        if place >= end:
            return None
    if data[place] or place + 1 != stop:
        return None
    return _Layout(stop - at, timestamp, delta, (*lengths, place - at), keyless)


def _number(data: Body, at: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it. Raises IndexError if it is too long or cut."""
    raw = shift = 0
    for place in range(at, at + _LONGEST):
        byte = data[place]
        raw |= (byte & 0x7F) << shift
        if byte < _CONTINUED:
            return raw >> 1 ^ -(raw & 1), place + 1
        shift += 7
    raise IndexError


def _after(data: Body, at: int) -> int:
    """The position after a varint. Raises IndexError."""
    return _number(data, at)[1]


def _column(data: Body, at: int, step: int, count: int) -> bytes:
    """One byte of each of `count` records."""
    return bytes(data[at : at + (count - 1) * step + 1 : step])


def _room(first: int) -> int:
    """How many offset deltas from `first` on differ only in their last two bytes."""
    return 64 - first if first < 64 else _BLOCK - first % _BLOCK


def _expected(first: int, count: int) -> tuple[bytes, ...]:
    """The columns of the offset deltas from `first` on, in the shortest form."""
    at = first % _BLOCK
    part = slice(at, at + count)
    if first < 64:
        return (_LOW[part],)
    if first < _BLOCK:
        return _LOW_MORE[part], _HIGH[part]
    rest = list(_groups(first // _BLOCK))
    return _LOW_MORE[part], _HIGH_MORE[part], *(bytes((group,)) * count for group in rest)


def _groups(number: int) -> Iterator[int]:
    """The bytes of an unsigned varint."""
    while number >= _CONTINUED:
        yield number & 0x7F | _CONTINUED
        number >>= 7
    yield number


def _times(columns: list[bytes]) -> tuple[int, int] | None:
    """The lowest and the highest of some varints; None if one is negative or of another length."""
    *more, last = columns
    if not last.isascii() or any(column.translate(None, _WITH_MORE) for column in more):
        return None
    if columns[0].translate(None, _EVEN):
        return None
    oldest, newest = _extreme(columns, min), _extreme(columns, max)
    return None if oldest is None or newest is None else (oldest >> 1, newest >> 1)


def _extreme(columns: list[bytes], pick: Callable[[set[int]], int]) -> int | None:
    """The lowest or highest number; None if the records with its upper bits are not adjacent.

    They are adjacent if timestamps grow from record to record.
    """
    start, stop = 0, len(columns[0])
    number = 0
    for column in columns[:0:-1]:
        part = column[start:stop]
        byte = pick(set(part))
        number = number << 7 | byte & 0x7F
        stop = start + part.rfind(byte) + 1
        start += part.find(byte)
        if part.count(byte) != stop - start:
            return None
    return number << 7 | pick(set(columns[0][start:stop])) & 0x7F
