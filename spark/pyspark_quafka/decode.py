"""Record batches into Arrow, many batches at a time.

Nothing here looks at a record in Python: the positions of all fields of all records are found in
numpy (`varints`), and Arrow gathers keys and values from where they lie. Of a chunk whose batches
are not compressed, that is the segment itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_quafka.arrow import HEADER_FIELDS, arrow_schema
from pyspark_quafka.columns import FROM_BATCH_HEADERS, HEADERS
from pyspark_quafka.record_starts import find_records
from quafka_proto.compression import TooLarge, decompress_into
from quafka_proto.errors import Malformed
from quafka_proto.message import Buffer
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    PATCHED_SIZE,
    TRANSACTIONAL,
    crc32c,
)
from quafka_proto.varints import Bytes, Flags, Longs, read_varints

_LEAST_RECORD = 7
BATCH_LIMIT = 1 << 30
"""The most that one batch may decompress to: whatever consumers can read, but no bomb."""
_FIRST_ARENA = 16 << 20
_MOST_BYTES = 256 << 20
"""Decompressed together: of memory, and positions in Arrow have 31 bits."""
_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert _HEADER.itemsize == BATCH_HEADER_SIZE

Headers = NDArray[np.void]


@dataclass(frozen=True)
class Batches:
    """Record batches that lie in one buffer, and which partition each is of.

    `sources` are indexes into `names`, the virtual topics that are read: topic and partition. Of
    each batch the records from offset `froms` up to, not including, `untils` are wanted.
    """

    data: Bytes
    starts: Longs
    lengths: Longs
    sources: Longs
    froms: Longs
    untils: Longs
    names: Sequence[tuple[str, int]]

    def only(self, wanted: Flags | Longs) -> Batches:
        """Some of them."""
        return Batches(
            self.data, self.starts[wanted], self.lengths[wanted], self.sources[wanted],
            self.froms[wanted], self.untils[wanted], self.names,
        )  # fmt: skip

    def headers(self) -> Headers:
        """Their headers, unchecked."""
        at = self.starts[:, None] + np.arange(BATCH_HEADER_SIZE)
        return self.data.take(at, mode="clip").view(_HEADER)[:, 0]

    def view_of(self, batch: int) -> memoryview:
        """One of them."""
        start = int(self.starts[batch])
        return self.data.data[start : start + int(self.lengths[batch])]

    def name_of(self, batch: int) -> str:
        """Where a batch is from, for people."""
        topic, partition = self.names[int(self.sources[batch])]
        return f"{topic}-{partition}"


@dataclass(frozen=True)
class Damage:
    """A batch that cannot be read."""

    topic: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"topic {self.topic}, partition {self.partition}, offset {self.offset}: {self.reason}"
        )


class CorruptBatchError(Exception):
    """A batch is damaged, and the reader is to fail on that (`mode = FAILFAST`)."""

    def __init__(self, damages: Sequence[Damage]) -> None:
        super().__init__(
            f"{len(damages)} damaged record batch{'es' if len(damages) > 1 else ''}: "
            + "; ".join(map(str, damages[:10]))
            + ". With the option mode = PERMISSIVE they are left out."
        )
        self.damages = damages


@dataclass(frozen=True)
class Wanted:
    """What a reader wants of records."""

    columns: tuple[str, ...]
    aborted: frozenset[tuple[int, int, int, int]] = frozenset()
    """Under read_committed: source, producer id, first and last offset of what was aborted."""
    limit: int = BATCH_LIMIT


_LAST_MS = ((1 << 63) - 1) // 1_000
"""The last time that Spark has, in ms: its times are in µs."""


class _TooMuchError(Exception):
    """Batches decompress to more than should be in memory together."""


Pieces = tuple[Longs, Longs]
"""Positions and sizes; a size of -1 is null."""


@dataclass(frozen=True)
class _Headers:
    """The headers of records, one record's behind those of the one before."""

    bounds: Longs
    """Of each record the number of its first header, and behind the last their count."""
    names: Pieces
    values: Pieces


@dataclass(frozen=True)
class _Records:
    """Records by the places of their fields in `data`."""

    data: Bytes
    batch: Longs
    offset: Longs
    timestamp: Longs
    keys: Pieces
    values: Pieces
    headers: _Headers | None


class Arena:
    """Memory that batches are decompressed into, the same for one call of `decode` after another:
    fresh memory costs more than what is done with it."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_FIRST_ARENA, np.uint8)

    def decompress(self, codec: int, packed: Buffer, at: int, limit: int) -> int:
        """Put at `at` what is packed, at most `limit` bytes; how many these are.

        Raises:
            TooLarge: there is more than `limit`.
            Malformed: not data of this codec, or the codec is not known.
        """
        while True:
            room = self.data.data[at : at + limit]
            try:
                return decompress_into(codec, packed, room)
            except TooLarge:
                if len(room) == limit:
                    raise
            larger = np.empty(min(2 * len(self.data), at + limit), np.uint8)
            larger[:at] = self.data[:at]
            self.data = larger


def decode(
    batches: Batches, wanted: Wanted, arena: Arena
) -> Iterator[tuple[pa.RecordBatch, list[Damage]]]:
    """The wanted records of these batches, in order, and what could not be read of them.

    Control batches are left out, and aborted ones. A damaged batch is left out as a whole. All of
    it comes at once, unless it decompresses to very much.
    """
    try:
        yield _decode(batches, wanted, arena)
    except _TooMuchError:
        many = np.arange(len(batches.starts))
        for half in np.array_split(many, 2):
            yield from decode(batches.only(half), wanted, arena)


def _decode(batches: Batches, wanted: Wanted, arena: Arena) -> tuple[pa.RecordBatch, list[Damage]]:
    headers = batches.headers()
    damages: list[Damage] = []
    good = _well_formed(batches, headers, damages)
    good &= headers["record_count"] > 0
    good &= headers["attributes"] & CONTROL == 0
    if wanted.aborted:
        good &= ~_aborted(batches, headers, wanted.aborted)
    if not good.all():
        batches, headers = batches.only(good), headers[good]
    if FROM_BATCH_HEADERS.issuperset(wanted.columns):
        dense = headers["record_count"] == headers["last_offset_delta"].astype(np.int64) + 1
        if dense.all() and _can_hold_records(headers).all():
            return _from_headers(batches, headers, wanted.columns), damages
    bodies, unreadable = _bodies(batches, headers, wanted.limit, arena)
    if unreadable:
        damages += [_damage(batches, headers, batch, text) for batch, text in unreadable.items()]
        readable = np.ones(len(headers), np.bool_)
        readable[list(unreadable)] = False
        batches, headers = batches.only(readable), headers[readable]
        bodies = bodies.only(readable)
    records, garbled = _read_records(headers, bodies, wanted.columns)
    if garbled.any():
        damages += [
            _damage(batches, headers, int(batch), "its records or their times are garbled")
            for batch in np.flatnonzero(garbled)
        ]
        batches, headers, bodies = batches.only(~garbled), headers[~garbled], bodies.only(~garbled)
        records, _ = _read_records(headers, bodies, wanted.columns)
    inside = records.offset >= batches.froms[records.batch]
    inside &= records.offset < batches.untils[records.batch]
    found = _to_arrow(batches, headers, records, wanted.columns)
    if not inside.all():
        found = found.take(_array(pa.int64(), np.flatnonzero(inside)))
    return found, damages


# --- batches --------------------------------------------------------------------------------


def _well_formed(batches: Batches, headers: Headers, damages: list[Damage]) -> Flags:
    """Which batches are what their headers say; their CRCs are checked with their bodies."""
    lengths = headers["length"].astype(np.int64) + 12
    counts, last = headers["record_count"], headers["last_offset_delta"]
    good: Flags = (lengths == batches.lengths) & (headers["magic"] == 2)
    good &= (counts >= 0) & (counts.astype(np.int64) <= last.astype(np.int64) + 1)
    good &= _can_hold_records(headers) | (headers["attributes"] & COMPRESSION_MASK != 0)
    damages += [
        _damage(batches, headers, int(batch), "its header is garbled")
        for batch in np.flatnonzero(~good)
    ]
    return good


def _can_hold_records(headers: Headers) -> Flags:
    """Which batches are long enough for their records. Brokers once stored any count unchecked.

    Of a compressed batch that is not, only its records can say whether it has so many.
    """
    bodies = headers["length"].astype(np.int64) + 12 - BATCH_HEADER_SIZE
    found: Flags = headers["record_count"].astype(np.int64) * _LEAST_RECORD <= bodies
    return found


def _damage(batches: Batches, headers: Headers, batch: int, reason: str) -> Damage:
    topic, partition = batches.names[int(batches.sources[batch])]
    offset = max(int(headers["base_offset"][batch]), int(batches.froms[batch]))
    return Damage(topic, partition, offset, reason)


def _aborted(
    batches: Batches, headers: Headers, aborted: Iterable[tuple[int, int, int, int]]
) -> Flags:
    found: Flags = np.zeros(len(headers), np.bool_)
    transactional = headers["attributes"] & TRANSACTIONAL != 0
    for source, producer, first, last in aborted:
        found |= (
            transactional
            & (batches.sources == source)
            & (headers["producer_id"] == producer)
            & (headers["base_offset"] >= first)
            & (headers["base_offset"] <= last)
        )
    return found


@dataclass(frozen=True)
class _Bodies:
    """The uncompressed records of batches, in one buffer."""

    data: Bytes
    starts: Longs
    ends: Longs

    def only(self, wanted: Flags) -> _Bodies:
        return _Bodies(self.data, self.starts[wanted], self.ends[wanted])


def _bodies(
    batches: Batches, headers: Headers, limit: int, arena: Arena
) -> tuple[_Bodies, dict[int, str]]:
    """Check and decompress; what cannot be is empty, and it is said why.

    Raises:
        _TooMuchError: several batches are too large to be decompressed together.
    """
    codecs = headers["attributes"] & COMPRESSION_MASK
    plain = not codecs.any()
    unreadable: dict[int, str] = {}
    starts, ends = batches.starts + BATCH_HEADER_SIZE, batches.starts + batches.lengths
    at = 0
    facts = headers["crc"].tolist(), codecs.tolist(), headers["record_count"].tolist()
    for batch, (crc, codec, count) in enumerate(zip(*facts, strict=True)):
        data = batches.view_of(batch)
        packed = data[BATCH_HEADER_SIZE:]
        try:
            _check_crc(data, crc)
            size = len(packed) if plain else arena.decompress(codec, packed, at, limit)
            _check_size(size, count)
        except Malformed as e:
            unreadable[batch] = str(e)
            size = 0
        if not plain:
            starts[batch], ends[batch] = at, at + size
            at += size
            if at > _MOST_BYTES and batch:
                raise _TooMuchError
    return _Bodies(batches.data if plain else arena.data[:at], starts, ends), unreadable


def _check_crc(batch: memoryview, crc: int) -> None:
    if crc32c(batch[PATCHED_SIZE:]) != crc:
        raise Malformed("it does not match its CRC")


def _check_size(size: int, count: int) -> None:
    if count * _LEAST_RECORD > size:
        raise Malformed(f"{size} bytes are not {count} records")


# --- records --------------------------------------------------------------------------------


def _read_records(
    headers: Headers, bodies: _Bodies, columns: Sequence[str]
) -> tuple[_Records, Flags]:
    """All records, and which batches are not what they say: of those nothing may be looked at."""
    data = bodies.data
    counts = headers["record_count"].astype(np.int64)
    batch = np.repeat(np.arange(len(counts)), counts)
    found = find_records(data, bodies.starts, bodies.ends, counts)
    size, at = read_varints(data, found)
    ends = at + size
    timestamp, at = read_varints(data, at + 1)  # behind the attributes, unused
    delta, at = read_varints(data, at)
    key_size, key = read_varints(data, at)
    value_size, value = read_varints(data, key + np.maximum(key_size, 0))
    header_count, header_at = read_varints(data, value + np.maximum(value_size, 0))
    fits = (found >= bodies.starts[batch]) & (ends <= bodies.ends[batch])
    # Each by itself first: sums of what is garbled may have wrapped around.
    fits &= (size >= _LEAST_RECORD - 1) & (size <= len(data))
    for part, least in ((key_size, -1), (value_size, -1), (header_count, 0)):
        fits &= (part >= least) & (part <= size)
    fits &= (header_at + 2 * header_count <= ends) & ((header_count > 0) | (header_at == ends))
    fits &= (delta >= 0) & (delta <= headers["last_offset_delta"].astype(np.int64)[batch])
    walked = None
    if HEADERS in columns:
        walked, headers_fit = _walk_headers(data, header_at, np.where(fits, header_count, 0), ends)
        fits &= headers_fit
    timestamp = _timestamps(headers, batch, timestamp)
    if "timestamp" in columns:
        fits &= (timestamp >= -_LAST_MS) & (timestamp <= _LAST_MS)
    garbled: Flags = np.zeros(len(counts), np.bool_)
    garbled[batch[~fits]] = True
    behind_last = np.zeros(len(counts), np.int64)
    behind_last[batch] = ends
    garbled |= behind_last != bodies.ends
    offset = headers["base_offset"].astype(np.int64)[batch] + delta
    pieces = (key, key_size), (value, value_size)
    return _Records(data, batch, offset, timestamp, *pieces, walked), garbled


def _timestamps(headers: Headers, batch: Longs, delta: Longs) -> Longs:
    timestamp: Longs = headers["base_timestamp"].astype(np.int64)[batch] + delta
    appended = headers["attributes"] & LOG_APPEND_TIME != 0
    if not appended.any():
        return timestamp
    newest = headers["max_timestamp"].astype(np.int64)
    return np.where(appended[batch], newest[batch], timestamp)


def _walk_headers(data: Bytes, at: Longs, counts: Longs, ends: Longs) -> tuple[_Headers, Flags]:
    """The headers of all records, one more of each at every step; and of which they fit."""
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    many = int(bounds[-1])
    names = (np.zeros(many, np.int64), np.zeros(many, np.int64))
    values = (np.zeros(many, np.int64), np.zeros(many, np.int64))
    fits: Flags = np.ones(len(counts), np.bool_)
    active = np.flatnonzero(counts)
    cursor = at[active]
    step = 0
    while len(active):
        slot = bounds[active] + step
        name_size, name = read_varints(data, cursor)
        value_size, value = read_varints(data, name + np.maximum(name_size, 0))
        cursor = value + np.maximum(value_size, 0)
        room = ends[active] - at[active]
        good = (name_size >= 0) & (name_size <= room) & (value_size >= -1) & (value_size <= room)
        good &= cursor <= ends[active]
        names[0][slot], names[1][slot] = name, name_size
        values[0][slot], values[1][slot] = value, value_size
        step += 1
        more = counts[active] > step
        good &= more | (cursor == ends[active])
        fits[active[~good]] = False
        active, cursor = active[more & good], cursor[more & good]
    return _Headers(bounds, names, values), fits


# --- columns --------------------------------------------------------------------------------


def _from_headers(batches: Batches, headers: Headers, columns: Sequence[str]) -> pa.RecordBatch:
    """Columns of batches that leave no offset out, without their records."""
    base = headers["base_offset"].astype(np.int64)
    first = np.maximum(base, batches.froms)
    many = np.minimum(base + headers["record_count"], batches.untils) - first
    batch = np.repeat(np.arange(len(base)), np.maximum(many, 0))
    until = np.cumsum(np.maximum(many, 0))
    offset = first[batch] + np.arange(len(batch)) - (until - np.maximum(many, 0))[batch]
    made = {
        "topic": lambda: _topics(batches, batch),
        "partition": lambda: _partitions(batches, batch),
        "offset": lambda: _array(pa.int64(), offset),
        "timestampType": lambda: _timestamp_types(headers, batch),
    }
    return _assemble(columns, [made[name]() for name in columns], len(batch))


def _to_arrow(
    batches: Batches, headers: Headers, records: _Records, columns: Sequence[str]
) -> pa.RecordBatch:
    made = {
        "key": lambda: _gather(records.data, *records.keys),
        "value": lambda: _gather(records.data, *records.values),
        "topic": lambda: _topics(batches, records.batch),
        "partition": lambda: _partitions(batches, records.batch),
        "offset": lambda: _array(pa.int64(), records.offset),
        "timestamp": lambda: _array(pa.timestamp("us", tz="UTC"), records.timestamp * 1_000),
        "timestampType": lambda: _timestamp_types(headers, records.batch),
        HEADERS: lambda: _header_lists(records),
    }
    return _assemble(columns, [made[name]() for name in columns], len(records.batch))


def _assemble(columns: Sequence[str], arrays: list[pa.Array], rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
    nothing = pa.Array.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)


def _array(kind: pa.DataType, values: NDArray[Any], nulls: Flags | None = None) -> pa.Array:
    """Values that have the type's own layout. `pa.array` would import pandas, for 0.3 s."""
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def _topics(batches: Batches, batch: Longs) -> pa.Array:
    topics = [topic.encode() for topic, _ in batches.names]
    bounds = np.cumsum([0, *map(len, topics)], dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(topics))]
    names = pa.Array.from_buffers(pa.string(), len(topics), buffers)
    return names.take(_array(pa.int64(), batches.sources[batch]))


def _partitions(batches: Batches, batch: Longs) -> pa.Array:
    partitions = np.array([partition for _, partition in batches.names], np.int32)
    return _array(pa.int32(), partitions[batches.sources[batch]])


def _timestamp_types(headers: Headers, batch: Longs) -> pa.Array:
    types = (headers["attributes"] & LOG_APPEND_TIME != 0).astype(np.int32)
    return _array(pa.int32(), types[batch])


def _gather(data: Bytes, starts: Longs, sizes: Longs) -> pa.Array:
    """The pieces of `data` that begin at ascending `starts`; null where the size is -1.

    Arrow sees them first as every other value of an array over the data itself: the bytes between
    them are values, too. The only copy is that of `take`.
    """
    if not len(starts):
        return pa.nulls(0, pa.binary())
    first = int(starts[0])
    nulls = sizes < 0
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2] = starts - first
    bounds[1::2] = starts - first + np.maximum(sizes, 0)
    every = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data[first:])]
    )
    chosen = np.arange(0, len(bounds), 2, dtype=np.int32)
    return every.take(_array(pa.int32(), chosen, nulls if nulls.any() else None))


def _header_lists(records: _Records) -> pa.Array:
    """Headers as Spark's Kafka source gives them: null where a record has none."""
    headers = records.headers
    assert headers is not None
    names = _names(_gather(records.data, *headers.names))
    values = _gather(records.data, *headers.values)
    pairs = pa.StructArray.from_arrays([names, values], fields=HEADER_FIELDS)
    offsets = _array(pa.int32(), headers.bounds.astype(np.int32), _none(np.diff(headers.bounds)))
    return pa.ListArray.from_arrays(
        offsets, pairs, type=arrow_schema([HEADERS]).field(HEADERS).type
    )


def _none(counts: Longs) -> Flags | None:
    nulls = counts == 0
    return np.append(nulls, False) if nulls.any() else None


def _names(names: pa.Array) -> pa.Array:
    """Names of headers are text; where one is not, as Java's decoder has it."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
