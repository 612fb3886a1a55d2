"""DescribeCluster (key 60), versions 0-2: this gateway is the only broker of the cluster.

The gateway is not a controller: a request for controllers (version 1 and up) is answered
MISMATCHED_ENDPOINT_TYPE (KIP-919).
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_CLUSTER, cluster_operations
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


async def handle(
    request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Describe the cluster."""
    if request.endpoint_type == _CONTROLLERS:
        return _refusal(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, not a controller")
    if request.endpoint_type != _BROKERS:
        message = f"endpoint type {request.endpoint_type} is not known"
        return _refusal(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    with context.child("gateway.kafka.describe_cluster") as span:
        answer = await context.tenant.topics.describe(DescribeTopics([]), span.context)
    host, port = context.session.advertised
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=answer.cluster_id,
        controller_id=context.node_id,
        brokers=[DescribeClusterBroker(broker_id=context.node_id, host=host, port=port)],
        cluster_authorized_operations=cluster_operations(context, requested=asked),
    )


API = Api(
    key=60,
    versions=Versions(0, 2),
    request=DescribeClusterRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER,),
    order=Order(reads=SeenState.TOPICS),
)


def _refusal(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)
