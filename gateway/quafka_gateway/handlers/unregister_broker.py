"""UnregisterBroker (key 64), version 0: every broker but this gateway is unknown.

Another broker's id is answered BROKER_ID_NOT_REGISTERED, as in Kafka. Kafka unregisters a broker
that runs, too, which then registers again; this gateway refuses its own id with INVALID_REQUEST.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, DENIED, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(
    request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    """Refuse the request by name."""
    if not may_on_cluster(ALTER_CLUSTER, context):
        return UnregisterBrokerResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=DENIED
        )
    if request.broker_id == context.node_id:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"broker {context.node_id} is the cluster's only one",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"broker {request.broker_id} is not registered",
    )


API = Api(
    key=64,
    versions=Versions(0, 0),
    request=UnregisterBrokerRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(),
    audited=True,
)
