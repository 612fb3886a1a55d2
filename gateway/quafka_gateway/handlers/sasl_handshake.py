"""SaslHandshake (key 17), versions 0-1: ILLEGAL_SASL_STATE, where no login can begin.

`edge/authentication.py` serves it when a login begins. Tools send it whenever they show a cluster.
A client gives up at an error code; it would retry a lost connection.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.sasl import SaslHandshakeRequest, SaslHandshakeResponse


async def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Offer no mechanism."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


API = Api(
    key=17,
    versions=Versions(0, 1),
    request=SaslHandshakeRequest,
    handle=handle,
    access=(),
    order=Order(writes=SeenState.ALL),
)
