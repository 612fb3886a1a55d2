"""AlterPartitionReassignments (key 45), versions 0-1: replicas stay where they are.

To assign a partition to the broker that it is on succeeds, as in Kafka; another assignment is
INVALID_REPLICA_ASSIGNMENT.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import replicas
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, DENIED, may_on_cluster
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

_NO_ERROR = (ErrorCode.NONE, None)
_DENIED = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED)


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Compare each assignment with the only one possible."""
    allowed = may_on_cluster(ALTER_CLUSTER, context)
    counts: dict[str, int] = {}
    if allowed:
        names = (topic.name for topic in request.topics)
        with context.child("gateway.kafka.alter_partition_reassignments") as span:
            counts = await replicas.partition_counts(names, context, span.context)
    outcomes = (
        _reassignment(context.node_id, part, counts.get(topic.name, 0)) if allowed else _DENIED
        for topic in request.topics
        for part in topic.partitions
    )
    responses = topic_results(
        ((topic.name, topic.partitions) for topic in request.topics),
        outcomes,
        lambda part, outcome: ReassignablePartitionResponse(part.partition_index, *outcome),
        ReassignableTopicResponse,
    )
    code, message = _NO_ERROR if allowed else _DENIED
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=await in_slices(responses),
    )


API = Api(
    key=45,
    versions=Versions(0, 1),
    request=AlterPartitionReassignmentsRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(reads=SeenState.TOPICS, writes=SeenState.REPLICAS),
    audited=True,
)


def _reassignment(
    node: int, part: ReassignablePartition, count: int
) -> tuple[ErrorCode, str | None]:
    if not 0 <= part.partition_index < count:
        return replicas.UNKNOWN_PARTITION
    if part.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not being moved"
    return replicas.assignment_fault([part.replicas], node) or (ErrorCode.NONE, None)
