"""A snapshot as Parquet files, which Iceberg and Delta can adopt without copying.

    DEST/<snapshot id>/topic=<name>/<partition>-<first offset>.parquet
    DEST/<snapshot id>/_SUCCESS          written last: without it the export is incomplete

Each file has the records of one partition between two offsets, sorted by offset, with all columns
of `spark.read.format("quafka")`, including `headers` and `topic`. So a topic's folder is a table,
and the export is one table partitioned by topic. Needs pyarrow and numpy, not Spark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from os import PathLike
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_quafka.arrow_schema import arrow_schema
from pyspark_quafka.columns import COLUMNS
from pyspark_quafka.index_rows import PartitionRange
from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import READ_COMMITTED, read_options
from pyspark_quafka.planner import SizedSlice, scan_of, sized_slices
from pyspark_quafka.scan import run
from pyspark_quafka.series import open_as_of
from pyspark_quafka.snapshot import Snapshot
from pyspark_quafka.store import open_store

FILE_BYTES = 64 << 20
"""Roughly the bytes of record batches in one file, which is made in memory."""
_ROW_GROUP = 1 << 17
SUCCESS = "_SUCCESS"


class Exported(NamedTuple):
    """What an export has written."""

    folder: str
    """Relative to the destination: the snapshot's id."""
    files: list[str]
    records: int
    read: int
    """Bytes of record batches."""
    written: int


def export_parquet(
    path: str | PathLike[str],
    dest: str | PathLike[str],
    *,
    topics: Sequence[str] | None = None,
    org: int = 1,
    as_of: str = "latest",
    isolation: str = READ_COMMITTED,
    compression: str = "zstd",
    storage: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Exported:
    """Write a snapshot's topics, by default all topics of the org, as Parquet files.

    `path` and `dest` are folders or URLs of object stores. `progress` is called with the bytes of
    record batches done, and of all. Files that an earlier export of the same snapshot has left are
    overwritten with the same content.

    Readers of the files cannot tell committed records from others. So by default the files have
    neither aborted records nor those from the last stable offset on: a later snapshot has these.

    Raises:
        QuafkaError: the snapshot or a topic does not exist, or is damaged.
        OSError: a store cannot be read or written.
    """
    path, dest = os.fspath(path), os.fspath(dest)
    options = read_options(
        {
            "path": path, "asOf": as_of, "org": str(org), "includeHeaders": "true",
            "isolation": isolation,
            **{f"s3.{name}": value for name, value in (storage or {}).items()},
            **({"subscribe": ",".join(topics)} if topics else {"subscribePattern": ".*"}),
        }
    )  # fmt: skip
    options = replace(options, columns=COLUMNS)
    snapshot = open_as_of(open_store(path, storage), as_of, org)
    into = open_store(dest, storage)
    planned = list(_planned(snapshot, ranges_to_read(snapshot, options)))
    total = sum(sized.bytes for _, slices in planned for sized in slices)
    done = records = written = 0
    files: list[str] = []
    for range_, slices in planned:
        scan = scan_of(snapshot, slices, [range_], options)
        try:
            made, rows = _encoded(_in_order(run(scan)), compression)
        except _OutOfOrderError:
            made, rows = _encoded([_sorted(run(scan))], compression)
        done += sum(sized.bytes for sized in slices)
        if rows:
            name = f"topic={quote(range_.topic)}/{range_.partition:05}-{range_.start:020}.parquet"
            files.append(f"{snapshot.id}/{name}")
            into.put(files[-1], made)
            written += len(made)
            records += rows
        progress(done, total)
    into.put(f"{snapshot.id}/{SUCCESS}", b"")
    return Exported(snapshot.id, files, records, done, written)


def _planned(
    snapshot: Snapshot, whole: Iterable[PartitionRange]
) -> Iterator[tuple[PartitionRange, list[SizedSlice]]]:
    """Each partition, split into ranges of offsets of about a file's size."""
    for range_ in whole:
        size = sum(sized.bytes for sized in sized_slices(snapshot, [range_]))
        many = max(1, round(size / FILE_BYTES))
        bounds = np.linspace(range_.start, range_.end, many + 1).astype(np.int64).tolist()
        for start, end in pairwise(bounds):
            narrowed = replace(range_, start=start, end=end)
            yield narrowed, list(sized_slices(snapshot, [narrowed]))


class _OutOfOrderError(Exception):
    """Offsets are not ascending."""


def _in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Row groups of records that arrive sorted by offset.

    Raises:
        _OutOfOrderError: they are not sorted: a rewritten segment has its entries in any order.
    """
    some: list[pa.RecordBatch] = []
    last = rows = 0
    for batch in batches:
        offsets = batch.column("offset").to_numpy()
        if offsets[0] < last or (np.diff(offsets) < 0).any():
            raise _OutOfOrderError
        last = offsets[-1]
        some.append(batch)
        rows += batch.num_rows
        if rows >= _ROW_GROUP:
            yield pa.Table.from_batches(some, arrow_schema(COLUMNS))
            some, rows = [], 0
    if some:
        yield pa.Table.from_batches(some, arrow_schema(COLUMNS))


def _sorted(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """All records, sorted in memory."""
    return pa.Table.from_batches(batches, arrow_schema(COLUMNS)).sort_by("offset")


def _encoded(tables: Iterable[pa.Table], compression: str) -> tuple[memoryview, int]:
    """The bytes of a file, and its number of records."""
    out = pa.BufferOutputStream()
    rows = 0
    with pq.ParquetWriter(
        out, arrow_schema(COLUMNS), compression=compression,
        # Offsets and times are stored as differences; dictionaries pay where values repeat.
        use_dictionary=["topic", "partition", "timestampType", "key"],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        coerce_timestamps="us",
    ) as writer:  # fmt: skip
        for table in tables:
            writer.write_table(table, 2 * _ROW_GROUP)
            rows += table.num_rows
    return memoryview(out.getvalue()), rows
