"""Helpers of the APIs about replicas: every partition has one replica, on this gateway."""

from __future__ import annotations

from collections.abc import Iterable

from quafka_gateway.context import RequestContext
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

UNKNOWN_PARTITION = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")


def assignment_fault(assignments: Iterable[list[int]], node: int) -> tuple[ErrorCode, str] | None:
    """Return why partitions cannot have these replicas; None if each has the only broker."""
    if all(brokers == [node] for brokers in assignments):
        return None
    message = f"a partition has one replica, on {node}, the only broker"
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message


async def partition_counts(
    names: Iterable[str], context: RequestContext, trace: TraceContext | None
) -> dict[str, int]:
    """Return how many partitions each topic has. Unknown topics are left out."""
    asked = list(dict.fromkeys(await listed(names)))
    answer = await context.tenant.topics.describe(DescribeTopics(asked), trace)
    counts = ((each.topic, each.partitions) for each in answer.topics if not each.error_code)
    return dict(await listed(counts))
