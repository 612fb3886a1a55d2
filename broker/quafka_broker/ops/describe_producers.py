"""Op 0x45, describe producers: a partition's recent idempotent producers and last sequences."""

from __future__ import annotations

from dataclasses import replace

from quafka_broker.state import BrokerState
from quafka_loop.slices import listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.admin import (
    ActiveProducer,
    DescribeProducersOps,
    DescribeProducersOpsResp,
    PartitionOp,
    PartitionProducers,
)
from quafka_proto.errors import ErrorCode


async def handle(
    state: BrokerState, context: OpContext, op: DescribeProducersOps
) -> DescribeProducersOpsResp:
    """Describe the remembered idempotent producers of each partition."""
    found = await listed(_describe(state, context.org_id, part) for part in op.partitions)
    return DescribeProducersOpsResp(found)


def _describe(state: BrokerState, org: int, op: PartitionOp) -> PartitionProducers:
    topic = state.registry.by_name(org, op.topic)
    if topic is None or not topic.has(op.partition):
        return PartitionProducers([], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    id_ = topic.partition_id(op.partition)
    transactions = state.log.partitions.get(id_).transactions
    producers: list[ActiveProducer] = []
    for known in state.producers.dump(id_):
        sequence, timestamp = known.batches[-1][1:3] if known.batches else (-1, known.used_ms)
        start = transactions.first_of(known.producer_id) if transactions is not None else None
        active = ActiveProducer(known.producer_id, known.epoch, sequence, timestamp)
        producers.append(active if start is None else replace(active, transaction_start=start))
    return PartitionProducers(sorted(producers, key=lambda each: each.producer_id))
