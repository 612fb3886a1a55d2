"""ListPartitionReassignments (key 46), version 0: an empty list, as no replica ever moves."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_CLUSTER, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.replicas import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """List no reassignment."""
    if not may_on_cluster(DESCRIBE_CLUSTER, context):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(error_code=code, error_message=DENIED)
    return ListPartitionReassignmentsResponse()


API = Api(
    key=46,
    versions=Versions(0, 0),
    request=ListPartitionReassignmentsRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER,),
    order=Order(reads=SeenState.TOPICS | SeenState.REPLICAS),
)
