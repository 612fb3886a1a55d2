"""The columns of records as Arrow arrays.

Keys and values are gathered from the decompressed records; those of uncompressed batches, from the
segment itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_quafka.arrow_schema import HEADER_FIELDS, arrow_schema
from pyspark_quafka.batches import Batches, BatchHeaders
from pyspark_quafka.columns import HEADERS
from pyspark_quafka.record_fields import Records
from quafka_proto.records import LOG_APPEND_TIME
from quafka_proto.varints import Bytes, Flags, Longs


def columns_of_headers(
    batches: Batches, headers: BatchHeaders, columns: Sequence[str]
) -> pa.RecordBatch:
    """Columns of batches that have every offset, made without reading the records."""
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


def columns_of_records(
    batches: Batches, headers: BatchHeaders, records: Records, columns: Sequence[str]
) -> pa.RecordBatch:
    """Columns of records."""
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
    """An array over values that have its type's layout. `pa.array` would import pandas: 0.3 s."""
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def take_rows(found: pa.RecordBatch, wanted: Flags) -> pa.RecordBatch:
    """Some of the rows."""
    return found.take(_array(pa.int64(), np.flatnonzero(wanted)))


def _topics(batches: Batches, batch: Longs) -> pa.Array:
    topics = [topic.encode() for topic, _ in batches.names]
    bounds = np.cumsum([0, *map(len, topics)], dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(topics))]
    names = pa.Array.from_buffers(pa.string(), len(topics), buffers)
    return names.take(_array(pa.int64(), batches.ranges[batch]))


def _partitions(batches: Batches, batch: Longs) -> pa.Array:
    partitions = np.array([partition for _, partition in batches.names], np.int32)
    return _array(pa.int32(), partitions[batches.ranges[batch]])


def _timestamp_types(headers: BatchHeaders, batch: Longs) -> pa.Array:
    types = (headers["attributes"] & LOG_APPEND_TIME != 0).astype(np.int32)
    return _array(pa.int32(), types[batch])


def _gather(data: Bytes, starts: Longs, sizes: Longs) -> pa.Array:
    """The pieces of `data` that begin at ascending `starts`; null if the size is -1.

    In an array over the data itself, every other value is a piece, and the values in between are
    the bytes in between. `take` makes the only copy.
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


def _header_lists(records: Records) -> pa.Array:
    """Headers as Spark's Kafka source gives them: null if a record has none."""
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
    """Header names as text; invalid UTF-8 is replaced as Java's decoder does it."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
