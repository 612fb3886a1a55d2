"""Shared by the broker's tests: batches, logs, and a broker's state without a mesh."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Set
from contextlib import asynccontextmanager
from pathlib import Path

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.leases import LEASE_SECONDS, Leases
from quafka_broker.partitions.partition import Partition, PartitionId, topic_hash
from quafka_broker.partitions.producers import Producers
from quafka_broker.state import BrokerState
from quafka_broker.transactions.peers import Peers
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_mesh_ops.handlers import OpContext
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import BatchHeader, crc32c, split_batches
from quafka_telemetry.tracing import Tracer

SEGMENT = 1 << 20
ORG = 1
EVERYTHING = 1 << 30


def topic_id(name: str = "t", partition: int = 0, generation: int = 0) -> PartitionId:
    return PartitionId(ORG, topic_hash(ORG, name), partition, generation)


def batch_of(
    *values: bytes, producer: tuple[int, int, int] | None = None, timestamp: int = 1_000
) -> bytes:
    """A batch with these values; `producer`: id, epoch and base sequence."""
    batch = build_batch([Record(0, timestamp, None, value, []) for value in values])
    if producer is not None:
        struct.pack_into(">qhi", batch, 43, *producer)
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


def checked(*values: bytes) -> list[tuple[BatchHeader, memoryview]]:
    return split_batches(batch_of(*values))


@asynccontextmanager
async def open_log(
    disk: Disk,
    fsync: FsyncPolicy = FsyncPolicy(),  # noqa: B008 - frozen
    segment_bytes: int = SEGMENT,
    checkpoint_bytes: int = 1 << 30,
    on_commit: Callable[[Set[PartitionId]], None] = lambda _grown: None,
) -> AsyncIterator[Log]:
    log = Log(disk, fsync, segment_bytes, checkpoint_bytes)
    try:
        log.open(Producers(), on_commit)
        log.settle(dict.fromkeys(log.partitions.ids(), 0))
        log.start()
        yield log
    finally:
        await log.close()


async def append(log: Log, name: str, *values: bytes) -> int:
    """Append one batch; returns its base offset."""
    return (await log.queue.append(log.partitions.get(topic_id(name)), checked(*values)))[0]


async def values_of(log: Log, partition: Partition | str, offset: int = 0) -> list[bytes]:
    """All values from `offset` on; the offsets in the batches are checked on the way."""
    if isinstance(partition, str):
        partition = log.partitions.get(topic_id(partition))
    found: list[bytes] = []
    for batch in await log.reader.read(partition, offset, EVERYTHING, at_least_one=True):
        for record in iter_records(batch):
            if record.offset >= offset:
                assert record.offset == offset + len(found)
                found.append(record.value or b"")
    return found


def context(org: int = ORG) -> OpContext:
    return OpContext(org, None, 0.0, "", Tracer())


@asynccontextmanager
async def running_state(
    disk: Disk,
    config: BrokerConfig | None = None,
    segment_bytes: int = SEGMENT,
    checkpoint_bytes: int = 1 << 30,
    lease_seconds: float = LEASE_SECONDS,
    peers: Peers | None = None,
) -> AsyncIterator[BrokerState]:
    """A broker's state over a recovered log, as `Broker.start` makes it."""
    log = Log(disk, FsyncPolicy(), segment_bytes, checkpoint_bytes)
    leases = Leases(lease_seconds)
    config = config or BrokerConfig(data=Path("unused"))
    state = BrokerState(config, log, leases=leases, peers=peers)
    log.open(state.producers, state.parked_fetches.wake)
    log.start()
    try:
        await state.replay_registry()
        await state.replay_security()
        await state.adopt_kafka()
        await state.start_groups()
        yield state
    finally:
        state.parked_fetches.drain()
        state.groups.drain()
        await state.close()
