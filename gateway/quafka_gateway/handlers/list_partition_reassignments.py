"""ListPartitionReassignments (key 46), version 0: an empty list, as no replica ever moves."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.message import Versions
from quafka_proto.schema.replicas import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """List no reassignment."""
    return ListPartitionReassignmentsResponse()


API = Api(
    key=46,
    versions=Versions(0, 0),
    request=ListPartitionReassignmentsRequest,
    handle=handle,
    order=Order(reads=State.TOPICS | State.REPLICAS),
)
