"""Op 0x20, epoch ends: where leader epochs end, for clients that detect truncation."""

from __future__ import annotations

from quafka_broker.partitions.leader_epochs import UNDEFINED
from quafka_broker.sources.source import PartitionSource, ask_all, error_of
from quafka_broker.state import BrokerState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.offsets import (
    EpochEndOp,
    EpochEndOpResp,
    EpochEndOps,
    EpochEndOpsResp,
    EpochEndResp,
)
from quafka_proto.errors import ErrorCode

_PARTITIONS_PER_SLICE = 200


async def handle(state: BrokerState, context: OpContext, op: EpochEndOps) -> EpochEndOpsResp:
    """Look up every partition's epoch."""
    answers: list[EpochEndOpResp] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    targets = await listed(_partition(state, context.org_id, part) for part in op.partitions)
    await ask_all(targets)
    for part, target in zip(op.partitions, targets, strict=True):
        answers.append(_end(part, target))
        await slices.done()
    return EpochEndOpsResp(answers)


def _partition(state: BrokerState, org: int, op: EpochEndOp) -> PartitionSource | None:
    topic = state.registry.by_name(org, op.topic)
    if topic is None or not topic.has(op.partition):
        return None
    return state.sources.partition(topic, op.partition)


def _end(op: EpochEndOp, partition: PartitionSource | None) -> EpochEndOpResp:
    if partition is None:
        return EpochEndOpResp(EpochEndResp(*UNDEFINED), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = error_of(partition.unready()) or partition.check_epoch(op.current_leader_epoch)
    if error:
        return EpochEndOpResp(EpochEndResp(*UNDEFINED), error)
    return EpochEndOpResp(EpochEndResp(*partition.end_of_epoch(op.leader_epoch)))
