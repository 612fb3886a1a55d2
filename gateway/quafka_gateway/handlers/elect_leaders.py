"""ElectLeaders (key 43), versions 0-2: ELECTION_NOT_NEEDED, as a partition's only replica leads it.

A request for all partitions (null) is answered without partitions: Kafka leaves out those that need
no election (KIP-460).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, DENIED, may_on_cluster
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.replicas import UNKNOWN_PARTITION, partition_counts
from quafka_loop.slices import in_slices
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.replicas import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_ELECTION_TYPES = (0, 1)  # preferred, unclean
_NOT_NEEDED = (ErrorCode.ELECTION_NOT_NEEDED, "its only replica leads it")


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Answer for each partition that the request names."""
    asked, code = request.topic_partitions or [], ErrorCode.NONE
    outcomes: Iterable[tuple[ErrorCode, str]]
    if not may_on_cluster(ALTER_CLUSTER, context):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        outcomes = repeat((code, DENIED))
    elif request.election_type not in _ELECTION_TYPES:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    else:
        with context.child("gateway.kafka.elect_leaders") as span:
            counts = await partition_counts((each.topic for each in asked), context, span.context)
        outcomes = (
            _NOT_NEEDED if 0 <= index < counts.get(each.topic, 0) else UNKNOWN_PARTITION
            for each in asked
            for index in each.partitions
        )
    results = topic_results(
        ((each.topic, each.partitions) for each in asked),
        outcomes,
        lambda index, outcome: PartitionResult(index, *outcome),
        ReplicaElectionResult,
    )
    return ElectLeadersResponse(error_code=code, replica_election_results=await in_slices(results))


API = Api(
    key=43,
    versions=Versions(0, 2),
    request=ElectLeadersRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(reads=SeenState.TOPICS, writes=SeenState.REPLICAS),
    audited=True,
)
