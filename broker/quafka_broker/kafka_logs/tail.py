"""Finds the end of a partition after a crash of Kafka: the last whole, valid batch."""

from __future__ import annotations

from dataclasses import replace

from quafka_broker.kafka_logs.batch_file import Placed, open_batches
from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.segments import KafkaSegment


def recover(
    segments: list[KafkaSegment], recovery_point: int | None, clean: bool
) -> tuple[list[KafkaSegment], int, Placed | None]:
    """The segments up to the first torn batch, the log end, and the last segment's last batch."""
    last = len(segments) - 1
    for number, segment in enumerate(segments):
        unsynced = recovery_point is not None and segment.next_offset > recovery_point
        if number < last and (clean or not unsynced):
            continue
        valid, end, final = _valid(segment, verify=not clean)
        if valid < segment.size or number == last:
            tail = replace(segment, size=valid, next_offset=end)
            return [*segments[:number], tail], end, final
    raise AssertionError("a partition without segments")


def _valid(segment: KafkaSegment, *, verify: bool) -> tuple[int, int, Placed | None]:
    """The bytes of a segment that are whole batches, the next offset, and the last batch."""
    position, end, final = 0, segment.base_offset, None
    with open_batches(segment.path, segment.size) as file:
        start = 0 if verify else segment.last_indexed(file)
        try:
            for placed in file.walk(start, verify=verify):
                position, end, final = placed.end, placed.header.last_offset + 1, placed
        except KafkaLogError:
            pass  # the torn end
    return position, end, final
