"""Reading partitions at an isolation level over a plain socket, as a client does it.

A read_committed client skips the data of a producer from the first offset of an aborted transaction
up to its abort marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from quafka_proto.message import Buffer
from quafka_proto.record_codec import MarkerType, Record, iter_records, read_marker
from quafka_proto.records import CONTROL, TRANSACTIONAL, BatchHeader, read_header
from quafka_proto.schema.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tests.support.kafka_calls import VERSION
from tests.support.raw_client import RawClient

_BASE_OFFSET_END, _LENGTH_END = 8, 12


@dataclass
class IsolatedReader:
    """One topic, from the start. Each poll continues at the positions of the one before.

    Attributes:
        positions: the next offset of each partition.
        stable, high: last stable offset and high watermark of each partition, as answered last.
    """

    topic: str
    partitions: int
    committed: bool
    positions: dict[int, int] = field(default_factory=dict[int, int])
    stable: dict[int, int] = field(default_factory=dict[int, int])
    high: dict[int, int] = field(default_factory=dict[int, int])

    def poll(self, client: RawClient, max_wait_ms: int = 0) -> list[tuple[int, Record]]:
        """One fetch of all partitions: partition and record. Partitions in error are left out."""
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 22,
            isolation_level=int(self.committed),
            topics=[
                FetchTopic(
                    topic=self.topic,
                    partitions=[
                        FetchPartition(
                            partition=number,
                            fetch_offset=self.positions.get(number, 0),
                            partition_max_bytes=1 << 20,
                        )
                        for number in range(self.partitions)
                    ],
                )
            ],
        )
        answer = client.call(request, FetchResponse, VERSION["fetch"])
        found: list[tuple[int, Record]] = []
        for topic in answer.responses:
            for part in topic.partitions:
                if not part.error_code:
                    self.stable[part.partition_index] = part.last_stable_offset
                    self.high[part.partition_index] = part.high_watermark
                    records = self._records(part)
                    found += ((part.partition_index, record) for record in records)
        return found

    def is_at_end(self) -> bool:
        """Whether the last poll has shown all there is at this isolation."""
        ends = self.stable if self.committed else self.high
        return len(ends) == self.partitions and all(
            self.positions.get(number, 0) >= end for number, end in ends.items()
        )

    def _records(self, part: PartitionData) -> Iterator[Record]:
        position = self.positions.get(part.partition_index, 0)
        assert not isinstance(part.records, list)  # decoded records are one buffer
        for header, batch in visible_batches(part, committed=self.committed):
            if batch is not None:
                yield from (record for record in iter_records(batch) if record.offset >= position)
            self.positions[part.partition_index] = max(position, header.last_offset + 1)


def visible_batches(
    part: PartitionData, *, committed: bool
) -> Iterator[tuple[BatchHeader, Buffer | None]]:
    """Each batch of a fetch answer; None in place of the bytes of what a client skips."""
    waiting = sorted(
        part.aborted_transactions or [] if committed else [], key=lambda one: one.first_offset
    )
    aborted: set[int] = set()
    assert not isinstance(part.records, list)
    for header, batch in _whole_batches(part.records or b""):
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        if header.attributes & CONTROL:
            _end(batch, header.producer_id, aborted)
            yield header, None
        elif header.attributes & TRANSACTIONAL and header.producer_id in aborted:
            yield header, None
        else:
            yield header, batch


def _whole_batches(records: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Batch by batch. Apache Kafka cuts the last one off where a limit is reached."""
    rest = memoryview(records)
    while len(rest) >= _LENGTH_END:
        size = _LENGTH_END + int.from_bytes(rest[_BASE_OFFSET_END:_LENGTH_END], "big")
        if size > len(rest):
            return
        yield read_header(rest[:size]), rest[:size]
        rest = rest[size:]


def _end(batch: Buffer, producer_id: int, aborted: set[int]) -> None:
    for record in iter_records(batch):
        marker = read_marker(record)
        if marker is not None and marker.type is MarkerType.ABORT:
            aborted.discard(producer_id)
