"""Op 0x09, delete records: records below an offset are no longer served.

The new log starts are durable before the answer. Offset -1 means all records. An offset at or below
the log start changes nothing; one above the high watermark is OFFSET_OUT_OF_RANGE. As in Kafka, a
topic whose `cleanup.policy` does not contain delete keeps its records: POLICY_VIOLATION.
"""

from __future__ import annotations

from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.records import (
    DeleteRecordsOp,
    DeleteRecordsOpResp,
    DeleteRecordsOps,
    DeleteRecordsOpsResp,
)
from quafka_proto.errors import ErrorCode
from quafka_telemetry import semconv

_ALL = -1
_PARTITIONS_PER_SLICE = 200


async def handle(
    state: BrokerState, context: OpContext, op: DeleteRecordsOps
) -> DeleteRecordsOpsResp:
    """Move the log start of every partition."""
    starts: dict[Topic, dict[int, int]] = {}
    answers: list[DeleteRecordsOpResp | tuple[Topic, int]] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for part in op.partitions:
        await slices.done()
        found = _target(state, context.org_id, part)
        if isinstance(found, ErrorCode):
            answers.append(DeleteRecordsOpResp(-1, found))
            continue
        topic, offset = found
        wanted = starts.setdefault(topic, {})
        wanted[part.partition] = max(offset, wanted.get(part.partition, 0))
        answers.append((topic, part.partition))
    error = ErrorCode.NONE
    try:
        with context.tracer.start(semconv.COMMIT, context.trace):
            await state.topics.delete_records(starts)
    except StorageError:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    return DeleteRecordsOpsResp(await listed(_answer(state, answer, error) for answer in answers))


def _target(state: BrokerState, org: int, part: DeleteRecordsOp) -> tuple[Topic, int] | ErrorCode:
    """The topic and the partition's new log start, or the error."""
    topic = state.registry.by_name(org, part.topic)
    if topic is None or not topic.has(part.partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = state.sources.partition(topic, part.partition)
    if not partition.deletes_records or not state.configs.policy(topic).deletes:
        return ErrorCode.POLICY_VIOLATION
    high_watermark = partition.high_watermark
    offset = high_watermark if part.offset == _ALL else part.offset
    if not 0 <= offset <= high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return topic, offset


def _answer(
    state: BrokerState, target: DeleteRecordsOpResp | tuple[Topic, int], error: ErrorCode
) -> DeleteRecordsOpResp:
    if isinstance(target, DeleteRecordsOpResp):
        return target
    topic, partition = target
    if error:
        return DeleteRecordsOpResp(-1, error)
    return DeleteRecordsOpResp(state.sources.partition(topic, partition).log_start)
