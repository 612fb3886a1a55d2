"""Op 0x04, list offsets: earliest (-2) and latest (-1).

Other timestamps are refused with UNSUPPORTED_FOR_MESSAGE_FORMAT, which clients take as "no such
offset is known", until there is an exact time index: an approximation would be taken for true.
"""

from __future__ import annotations

from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops import (
    ListOffsetsOp,
    ListOffsetsOpResp,
    ListOffsetsOps,
    ListOffsetsOpsResp,
)
from quafka_mesh_ops.server import OpContext
from quafka_mesh_ops.tracing import fail_with
from quafka_proto.errors import ErrorCode

_EARLIEST, _LATEST = -2, -1
_LEADER_EPOCH = 0


async def handle(state: BrokerState, context: OpContext, op: ListOffsetsOps) -> ListOffsetsOpsResp:
    """Resolve every partition's timestamp."""
    with context.tracer.start("rafka.broker.list_offsets.read", context.trace) as span:
        answers = [_find(state, context.org_id, part) for part in op.partitions]
        if span.context is not None:
            span.set({"messaging.system": "kafka", "partitions": len(answers)})
            fail_with(span, (answer.error_code for answer in answers))
    return ListOffsetsOpsResp(answers)


def _find(state: BrokerState, org: int, op: ListOffsetsOp) -> ListOffsetsOpResp:
    topic = state.registry.by_name(org, op.topic)
    if topic is None or not 0 <= op.partition < topic.partitions:
        return ListOffsetsOpResp(-1, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if op.current_leader_epoch > _LEADER_EPOCH:
        return ListOffsetsOpResp(-1, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)
    virtual = state.log.topic(topic.virtual(op.partition))
    if op.timestamp == _EARLIEST:
        return ListOffsetsOpResp(virtual.log_start, leader_epoch=_LEADER_EPOCH)
    if op.timestamp == _LATEST:
        return ListOffsetsOpResp(virtual.high_watermark, leader_epoch=_LEADER_EPOCH)
    return ListOffsetsOpResp(-1, error_code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
