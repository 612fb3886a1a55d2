"""Events of the broker's own topics as record batches: written in bounded sizes, read at any size.

Decoding a batch takes several times its size in memory. So no batch is written with more than about
`BATCH_BYTES` of events, unless a single event is larger; the writers bound such events. Earlier
broker versions wrote batches of any size. A batch in the log is never refused for its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quafka_proto.compression import DECOMPRESSED_LIMIT
from quafka_proto.message import Buffer
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import BatchHeader, split_batches

BATCH_BYTES = 1 << 20
_BATCH_EVENTS = 100


def batches(
    values: Iterable[bytes], now_ms: int, most: int = _BATCH_EVENTS
) -> Iterator[list[tuple[BatchHeader, memoryview]]]:
    """Encoded events as batches, one at a time, of at most `most` events each."""
    records: list[Record] = []
    size = 0
    for value in values:
        if records and (len(records) >= most or size + len(value) > BATCH_BYTES):
            yield split_batches(build_batch(records))
            records, size = [], 0
        records.append(Record(0, now_ms, None, value, []))
        size += len(value)
    if records:
        yield split_batches(build_batch(records))


def records_of(batch: Buffer) -> Iterator[Record]:
    """The records of a batch of events, of any size.

    Events are not compressed, so decoding takes only a few times the memory of the batch.

    Raises:
        Malformed: the batch is damaged.
    """
    return iter_records(batch, limit=max(DECOMPRESSED_LIMIT, len(batch)))
