"""Op 0x04, list offsets: the offset for a timestamp, or for one of Kafka's special timestamps.

| timestamp | answer |
| --- | --- |
| -1 latest | the high watermark, at any isolation level |
| -2 earliest, -4 earliest local | the log start: all of the log is local |
| -3 max timestamp | the record with the greatest timestamp, and that timestamp |
| -5 latest tiered, -6 earliest pending upload | -1: nothing is tiered |
| 0 and above | the first record with a timestamp at or above it, and its timestamp |

Without such a record the offset is -1, and no error, as in Kafka.
"""

from __future__ import annotations

from quafka_broker.partitions import time_search
from quafka_broker.partitions.errors import CorruptError, OffsetGoneError, StorageError
from quafka_broker.partitions.partition import Partition
from quafka_broker.state import BrokerState
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.offsets import (
    ListOffsetsOp,
    ListOffsetsOpResp,
    ListOffsetsOps,
    ListOffsetsOpsResp,
)
from quafka_proto.errors import ErrorCode, Malformed
from quafka_telemetry import semconv
from quafka_telemetry.slices import Slices
from quafka_telemetry.tracing import fail_with

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_TIERED = (-5, -6)
_PARTITIONS_PER_SLICE = 200


async def handle(state: BrokerState, context: OpContext, op: ListOffsetsOps) -> ListOffsetsOpsResp:
    """Resolve every partition's timestamp."""
    with context.tracer.start(semconv.LIST_OFFSETS_READ, context.trace) as span:
        answers: list[ListOffsetsOpResp] = []
        slices = Slices(_PARTITIONS_PER_SLICE)
        for part in op.partitions:
            answers.append(await _find(state, context.org_id, part))
            await slices.done()
        if span.context is not None:
            span.set({semconv.PARTITIONS: len(answers)})
            fail_with(span, (answer.error_code for answer in answers))
    return ListOffsetsOpsResp(answers)


async def _find(state: BrokerState, org: int, op: ListOffsetsOp) -> ListOffsetsOpResp:
    topic = state.registry.by_name(org, op.topic)
    if topic is None or not topic.has(op.partition):
        return ListOffsetsOpResp(-1, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    epochs = state.log.epochs
    error = epochs.check(op.current_leader_epoch)
    if error:
        return ListOffsetsOpResp(-1, error_code=error)
    partition = state.log.partition(topic.partition_id(op.partition))
    if op.timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        start = partition.log_start
        return ListOffsetsOpResp(start, leader_epoch=epochs.epoch_at(partition, start))
    if op.timestamp == _LATEST:
        return ListOffsetsOpResp(partition.high_watermark, leader_epoch=epochs.current)
    if op.timestamp in _TIERED:
        return ListOffsetsOpResp(-1)
    return await _search(state, partition, op.timestamp)


async def _search(state: BrokerState, partition: Partition, timestamp: int) -> ListOffsetsOpResp:
    try:
        if timestamp == _MAX_TIMESTAMP:
            found = await time_search.latest(state.log.reader, partition)
        elif timestamp >= 0:
            found = await time_search.first_from(state.log.reader, partition, timestamp)
        else:
            return ListOffsetsOpResp(-1, error_code=ErrorCode.UNSUPPORTED_VERSION)
    except (CorruptError, Malformed):
        return ListOffsetsOpResp(-1, error_code=ErrorCode.CORRUPT_MESSAGE)
    except StorageError:
        return ListOffsetsOpResp(-1, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    if found is None:
        return ListOffsetsOpResp(-1)
    try:
        epoch = state.log.epochs.epoch_at(partition, found.offset)
    except OffsetGoneError:  # deleted meanwhile: a fetch at this offset reports it
        epoch = -1
    return ListOffsetsOpResp(found.offset, timestamp=found.timestamp, leader_epoch=epoch)
