"""DescribeQuorum (key 55), versions 0-2: the quorum of Kafka's metadata log.

The metadata log is the registry in the home broker's log. It has one voter, which is the leader and
which clients know as this gateway, and no observers.
"""

from __future__ import annotations

from dataclasses import replace

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_CLUSTER, may_on_cluster
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop import clock
from quafka_loop.slices import in_slices
from quafka_mesh_ops.ops.admin import DescribeBroker, DescribeBrokerResp
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.quorum import (
    DescribeQuorumPartitionData,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopicData,
    QuorumListener,
    QuorumNode,
    QuorumReplicaState,
)

_TOPIC = "__cluster_metadata"


async def handle(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Describe the quorum of the only topic that has one."""
    if not may_on_cluster(DESCRIBE_CLUSTER, context):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=code, error_message=DENIED)
    with context.child("gateway.kafka.describe_quorum") as span:
        try:
            broker = await context.tenant.admin.call_home(DescribeBroker(), span.context)
        except BrokerUnavailableError as e:
            return DescribeQuorumResponse(error_code=e.code, error_message=str(e))
    if not context.sees_all_orgs:  # every org's changes of topics have offsets there
        broker = replace(broker, registry_start=0, registry_end=0)
    node, (host, port) = context.node_id, context.session.advertised
    name = context.session.listener
    topics = topic_results(
        ((topic.topic_name, topic.partitions) for topic in request.topics),
        (topic.topic_name for topic in request.topics for _ in topic.partitions),
        lambda part, topic: _partition(node, topic, part.partition_index, broker),
        DescribeQuorumTopicData,
    )
    return DescribeQuorumResponse(
        topics=await in_slices(topics),
        nodes=[
            QuorumNode(node_id=node, listeners=[QuorumListener(name=name, host=host, port=port)])
        ],
    )


API = Api(
    key=55,
    versions=Versions(0, 2),
    request=DescribeQuorumRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER,),
    order=Order(reads=SeenState.TOPICS | SeenState.CONFIGS),
)


def _partition(
    node: int, topic: str, index: int, broker: DescribeBrokerResp
) -> DescribeQuorumPartitionData:
    if (topic, index) != (_TOPIC, 0):
        return DescribeQuorumPartitionData(
            partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    now = clock.time_ns() // 1_000_000
    leader = QuorumReplicaState(
        replica_id=node,
        log_end_offset=broker.registry_end,
        last_fetch_timestamp=now,
        last_caught_up_timestamp=now,
    )
    return DescribeQuorumPartitionData(
        partition_index=index,
        leader_id=node,
        leader_epoch=broker.leader_epoch,
        high_watermark=broker.registry_end,
        current_voters=[leader],
    )
