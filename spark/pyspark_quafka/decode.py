"""Record batches into Arrow, many batches at a time.

`batches` has the headers, `bodies` the decompressed records, `record_fields` the positions of
their fields, and `arrow_columns` makes Arrow arrays of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_quafka.aborted import ScanAborts
from pyspark_quafka.arrow_columns import columns_of_headers, columns_of_records, take_rows
from pyspark_quafka.batches import Batches, can_hold_records, damage_of, well_formed
from pyspark_quafka.bodies import BATCH_LIMIT, Arena, TooMuchError, read_bodies
from pyspark_quafka.columns import FROM_BATCH_HEADERS
from pyspark_quafka.damage import BatchDamage
from pyspark_quafka.record_fields import read_records
from quafka_proto.records import CONTROL


@dataclass(frozen=True)
class Wanted:
    """Which records a reader wants.

    Attributes:
        aborted: the transactions whose records are not wanted; None: all records are.
        limit: how much a batch may decompress to.
    """

    columns: tuple[str, ...]
    aborted: ScanAborts | None = None
    limit: int = BATCH_LIMIT


def decode(
    batches: Batches, wanted: Wanted, arena: Arena
) -> Iterator[tuple[pa.RecordBatch, list[BatchDamage]]]:
    """The wanted records of these batches, in order, and the damage in them.

    Control batches and aborted transactions are left out, and so is a damaged batch as a whole.
    All records come at once, unless they decompress to more than should be in memory together.
    """
    try:
        yield _decode(batches, wanted, arena)
    except TooMuchError:
        many = np.arange(len(batches.starts))
        for half in np.array_split(many, 2):
            yield from decode(batches.only(half), wanted, arena)


def _decode(
    batches: Batches, wanted: Wanted, arena: Arena
) -> tuple[pa.RecordBatch, list[BatchDamage]]:
    headers = batches.headers()
    damages: list[BatchDamage] = []
    good = well_formed(batches, headers, damages)
    good &= headers["record_count"] > 0
    good &= headers["attributes"] & CONTROL == 0
    if wanted.aborted is not None:
        good &= ~wanted.aborted.having(batches, headers)
    if not good.all():
        batches, headers = batches.only(good), headers[good]
    if FROM_BATCH_HEADERS.issuperset(wanted.columns):
        dense = headers["record_count"] == headers["last_offset_delta"].astype(np.int64) + 1
        if dense.all() and can_hold_records(headers).all():
            return columns_of_headers(batches, headers, wanted.columns), damages
    bodies, unreadable = read_bodies(batches, headers, wanted.limit, arena)
    if unreadable:
        damages += [damage_of(batches, headers, batch, text) for batch, text in unreadable.items()]
        readable = np.ones(len(headers), np.bool_)
        readable[list(unreadable)] = False
        batches, headers = batches.only(readable), headers[readable]
        bodies = bodies.only(readable)
    records, garbled = read_records(headers, bodies, wanted.columns)
    if garbled.any():
        damages += [
            damage_of(batches, headers, int(batch), "its records or their times are garbled")
            for batch in np.flatnonzero(garbled)
        ]
        batches, headers, bodies = batches.only(~garbled), headers[~garbled], bodies.only(~garbled)
        records, _ = read_records(headers, bodies, wanted.columns)
    inside = records.offset >= batches.froms[records.batch]
    inside &= records.offset < batches.untils[records.batch]
    found = columns_of_records(batches, headers, records, wanted.columns)
    if not inside.all():
        found = take_rows(found, inside)
    return found, damages
