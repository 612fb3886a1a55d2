"""Op 0x20, epoch ends: where leader epochs end, for clients that detect truncation."""

from __future__ import annotations

from quafka_broker.partitions.leader_epochs import UNDEFINED
from quafka_broker.state import BrokerState
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.offsets import (
    EpochEnd,
    EpochEndOp,
    EpochEndOpResp,
    EpochEndOps,
    EpochEndOpsResp,
)
from quafka_proto.errors import ErrorCode
from quafka_telemetry.slices import Slices

_PARTITIONS_PER_SLICE = 200


async def handle(state: BrokerState, context: OpContext, op: EpochEndOps) -> EpochEndOpsResp:
    """Look up every partition's epoch."""
    answers: list[EpochEndOpResp] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for part in op.partitions:
        answers.append(_end(state, context.org_id, part))
        await slices.done()
    return EpochEndOpsResp(answers)


def _end(state: BrokerState, org: int, op: EpochEndOp) -> EpochEndOpResp:
    topic = state.registry.by_name(org, op.topic)
    if topic is None or not topic.has(op.partition):
        return EpochEndOpResp(EpochEnd(*UNDEFINED), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    epochs = state.log.epochs
    error = epochs.check(op.current_leader_epoch)
    if error:
        return EpochEndOpResp(EpochEnd(*UNDEFINED), error)
    partition = state.log.partition(topic.partition_id(op.partition))
    return EpochEndOpResp(EpochEnd(*epochs.end_of(partition, op.leader_epoch)))
