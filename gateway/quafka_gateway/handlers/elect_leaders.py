"""ElectLeaders (key 43), versions 0-2: ELECTION_NOT_NEEDED, as a partition's only replica leads it.

A request for all partitions (null) is answered without partitions: Kafka leaves out those that need
no election (KIP-460).
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, DENIED, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_gateway.handlers.replicas import UNKNOWN_PARTITION, partition_counts
from quafka_loop.slices import Slices
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
_PARTITIONS_PER_SLICE = 500


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Answer for each partition that the request names."""
    if not may_on_cluster(ALTER_CLUSTER, context):
        return await _refused(request)
    if request.election_type not in _ELECTION_TYPES:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    asked = request.topic_partitions or []
    with context.child("gateway.kafka.elect_leaders") as span:
        counts = await partition_counts((each.topic for each in asked), context, span.context)
    results: list[ReplicaElectionResult] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for each in asked:
        result = ReplicaElectionResult(topic=each.topic)
        await slices.done()
        for index in each.partitions:
            await slices.done()
            exists = 0 <= index < counts.get(each.topic, 0)
            code, message = _NOT_NEEDED if exists else UNKNOWN_PARTITION
            result.partition_result.append(
                PartitionResult(partition_id=index, error_code=code, error_message=message)
            )
        results.append(result)
    return ElectLeadersResponse(replica_election_results=results)


API = Api(
    key=43,
    versions=Versions(0, 2),
    request=ElectLeadersRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(reads=State.TOPICS, writes=State.REPLICAS),
    audited=True,
)


async def _refused(request: ElectLeadersRequest) -> ElectLeadersResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results: list[ReplicaElectionResult] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for each in request.topic_partitions or []:
        result = ReplicaElectionResult(topic=each.topic)
        results.append(result)
        await slices.done()
        for index in each.partitions:
            result.partition_result.append(PartitionResult(index, code, DENIED))
            await slices.done()
    return ElectLeadersResponse(error_code=code, replica_election_results=results)
