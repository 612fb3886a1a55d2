"""Op 0x04, list offsets: the offset for a timestamp, or for one of Kafka's special timestamps.

| timestamp | answer |
| --- | --- |
| -1 latest | the high watermark; the last stable offset of read_committed clients |
| -2 earliest, -4 earliest local | the log start: all of the log is local |
| -3 max timestamp | the record with the highest timestamp, and that timestamp |
| -5 latest tiered, -6 earliest pending upload | -1: nothing is tiered |
| 0 and above | the first record with a timestamp at or above it, and its timestamp |

Without such a record the offset is -1, and no error, as in Kafka.
"""

from __future__ import annotations

from quafka_broker.ops.destinations import destinations
from quafka_broker.partitions.errors import CorruptError, OffsetGoneError, StorageError
from quafka_broker.sources.source import PartitionSource, ask_all, error_of
from quafka_broker.state import BrokerState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.offsets import (
    ListOffsetsOp,
    ListOffsetsOpResp,
    ListOffsetsOps,
    ListOffsetsOpsResp,
)
from quafka_proto.errors import ErrorCode, Malformed
from quafka_telemetry import semconv
from quafka_telemetry.destinations import describe_destinations
from quafka_telemetry.tracing import fail_with

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_TIERED = (-5, -6)
_READ_COMMITTED = 1
_PARTITIONS_PER_SLICE = 200


async def handle(state: BrokerState, context: OpContext, op: ListOffsetsOps) -> ListOffsetsOpsResp:
    """Resolve every partition's timestamp."""
    with context.tracer.start(semconv.LIST_OFFSETS_READ, context.trace) as span:
        committed = op.isolation_level == _READ_COMMITTED
        answers: list[ListOffsetsOpResp] = []
        targets = await listed(_partition(state, context.org_id, part) for part in op.partitions)
        await ask_all(targets)
        slices = Slices(_PARTITIONS_PER_SLICE)
        for part, target in zip(op.partitions, targets, strict=True):
            answers.append(await _find(part, target, committed))
            await slices.done()
        if span.context is not None:
            span.set({semconv.PARTITIONS: len(answers)})
            describe_destinations(span, destinations(state, context.org_id, op.partitions))
            fail_with(span, (answer.error_code for answer in answers), type(op).__name__)
    return ListOffsetsOpsResp(answers)


def _partition(state: BrokerState, org: int, op: ListOffsetsOp) -> PartitionSource | None:
    topic = state.registry.by_name(org, op.topic)
    if topic is None or not topic.has(op.partition):
        return None
    return state.sources.partition(topic, op.partition)


async def _find(
    op: ListOffsetsOp, partition: PartitionSource | None, committed: bool
) -> ListOffsetsOpResp:
    if partition is None:
        return ListOffsetsOpResp(-1, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = error_of(partition.unready()) or partition.check_epoch(op.current_leader_epoch)
    if error:
        return ListOffsetsOpResp(-1, error_code=error)
    if op.timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        start = partition.log_start
        return ListOffsetsOpResp(start, leader_epoch=partition.epoch_at(start))
    if op.timestamp == _LATEST:
        end = partition.last_stable_offset if committed else partition.high_watermark
        return ListOffsetsOpResp(end, leader_epoch=partition.leader_epoch)
    if op.timestamp in _TIERED:
        return ListOffsetsOpResp(-1)
    found = await _search(partition, op.timestamp)
    if committed and found.offset >= partition.end(committed):  # the transaction is not decided yet
        return ListOffsetsOpResp(-1)
    return found


async def _search(partition: PartitionSource, timestamp: int) -> ListOffsetsOpResp:
    try:
        if timestamp == _MAX_TIMESTAMP:
            found = await partition.latest()
        elif timestamp >= 0:
            found = await partition.first_from(timestamp)
        else:
            return ListOffsetsOpResp(-1, error_code=ErrorCode.UNSUPPORTED_VERSION)
    except (CorruptError, Malformed):
        return ListOffsetsOpResp(-1, error_code=ErrorCode.CORRUPT_MESSAGE)
    except StorageError:
        return ListOffsetsOpResp(-1, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    if found is None:
        return ListOffsetsOpResp(-1)
    try:
        epoch = partition.epoch_at(found.offset)
    except OffsetGoneError:  # deleted meanwhile: a fetch at this offset reports it
        epoch = -1
    return ListOffsetsOpResp(found.offset, timestamp=found.timestamp, leader_epoch=epoch)
