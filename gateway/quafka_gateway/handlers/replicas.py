"""What Kafka lets be done with replicas, where every partition has one: on this gateway.

ElectLeaders (key 43), versions 0-2; AlterPartitionReassignments (45), 0-1;
ListPartitionReassignments (46), 0. The leader leads already, and nothing moves; to put a replica
where it is succeeds, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from quafka_gateway.context import RequestContext
from quafka_mesh_ops.ops.records import DescribeTopics
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from quafka_telemetry.tracing import TraceContext

_ELECTION_TYPES = (0, 1)  # preferred, unclean
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")


async def elect_leaders(
    request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    """No election is needed. Where all partitions are meant, such are not named (KIP-460)."""
    if request.election_type not in _ELECTION_TYPES:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    asked = request.topic_partitions or []
    with context.child("gateway.kafka.elect_leaders") as span:
        counts = await _partitions((each.topic for each in asked), context, span.context)
    needless = (ErrorCode.ELECTION_NOT_NEEDED, "its only replica leads it")
    results: list[ReplicaElectionResult] = []
    for each in asked:
        result = ReplicaElectionResult(topic=each.topic)
        for index in each.partitions:
            code, message = needless if 0 <= index < counts.get(each.topic, 0) else _UNKNOWN
            result.partition_result.append(
                PartitionResult(partition_id=index, error_code=code, error_message=message)
            )
        results.append(result)
    return ElectLeadersResponse(replica_election_results=results)


async def alter_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Replicas stay where they are."""
    names = (topic.name for topic in request.topics)
    with context.child("gateway.kafka.alter_partition_reassignments") as span:
        counts = await _partitions(names, context, span.context)
    responses: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        response = ReassignableTopicResponse(name=topic.name)
        for part in topic.partitions:
            code, message = _reassignment(context.node_id, part, counts.get(topic.name, 0))
            response.partitions.append(
                ReassignablePartitionResponse(
                    partition_index=part.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(response)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=responses,
    )


def _reassignment(
    node: int, part: ReassignablePartition, count: int
) -> tuple[ErrorCode, str | None]:
    if not 0 <= part.partition_index < count:
        return _UNKNOWN
    if part.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not being moved"
    return fault([part.replicas], node) or (ErrorCode.NONE, None)


def fault(assignments: Iterable[list[int]], node: int) -> tuple[ErrorCode, str] | None:
    """Why partitions cannot have these replicas; None where each has the only broker."""
    if all(brokers == [node] for brokers in assignments):
        return None
    message = f"a partition has one replica, on {node}, the only broker"
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message


async def list_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Nothing is being moved."""
    return ListPartitionReassignmentsResponse()


async def _partitions(
    names: Iterable[str], context: RequestContext, trace: TraceContext | None
) -> dict[str, int]:
    """How many partitions these topics have; those that there are not are left out."""
    asked = list(dict.fromkeys(names))
    answer = await context.broker.describe_topics(DescribeTopics(asked), trace)
    return {topic.topic: topic.partitions for topic in answer.topics if not topic.error_code}
