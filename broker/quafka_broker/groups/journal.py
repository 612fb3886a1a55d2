"""What is durable of consumer groups: JSON events in the internal virtual topic `__quafka_groups`.

Replaying them, the later one winning, gives the groups and their offsets. An offset is committed
when its event is durable.

    {"event": "offsets", "org": 1, "group": …, "offsets":
        [[topic, its generation, partition, offset, leader epoch, metadata, committed at ms], …]}
    {"event": "group", "org": 1, "group": …, "since_ms": …, and what `Group.stored` gives}
    {"event": "offsets_deleted", "org": 1, "group": …, "partitions": [[topic, partition], …]}
    {"event": "group_deleted", "org": 1, "group": …}

Offsets of a topic that was deleted, told by its generation, are nobody's: no event says so.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

from quafka_broker.topics import REGISTRY_ORG
from quafka_broker.virtual_topics import VirtualTopicId, topic_hash
from quafka_broker.wal.log import Log
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import BatchHeader, read_header, split_batches

GROUPS_NAME = "__quafka_groups"
GROUPS = VirtualTopicId(REGISTRY_ORG, topic_hash(REGISTRY_ORG, GROUPS_NAME), 0, 0)

_READ_BYTES = 1 << 20

Event = dict[str, Any]


def batch_of(events: list[Event], now_ms: int) -> list[tuple[BatchHeader, memoryview]]:
    """The events as a batch that can be appended."""
    records = [Record(0, now_ms, None, _encode(event), []) for event in events]
    return split_batches(build_batch(records))


async def events(log: Log) -> AsyncIterator[tuple[int, Event]]:
    """All events that are in the log, with their offsets.

    Raises:
        StorageError: the log cannot be read.
        ValueError: an event is not JSON.
    """
    virtual = log.topic(GROUPS)
    offset = virtual.log_start
    while offset < virtual.high_watermark:
        for batch in await log.read(virtual, offset, _READ_BYTES, at_least_one=True):
            offset = read_header(batch).base_offset
            for record in iter_records(batch):
                yield offset, cast(Event, json.loads(record.value or b""))
                offset += 1


def _encode(event: Event) -> bytes:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
