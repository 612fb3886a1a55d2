"""ConsumerGroupHeartbeat (key 68), versions 0-1: UNSUPPORTED_VERSION, as where KIP-848 is off.

Clients report the error. Without the API, librdkafka would wait in silence.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Refuse the protocol."""
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="the consumer group protocol is not served here: use group.protocol=classic",
    )


API = Api(
    key=68,
    versions=Versions(0, 1),
    request=ConsumerGroupHeartbeatRequest,
    handle=handle,
    access=(),
    order=Order(),
)
