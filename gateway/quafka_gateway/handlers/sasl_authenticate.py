"""SaslAuthenticate (key 36), versions 0-2: ILLEGAL_SASL_STATE, where no login is under way.

`edge/authentication.py` serves it during a login.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse

_NOT_NOW = "no login is under way: the client has logged in, or the listener does not use SASL"


async def handle(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Refuse without reading the credentials."""
    code = ErrorCode.ILLEGAL_SASL_STATE
    return SaslAuthenticateResponse(error_code=code, error_message=_NOT_NOW, auth_bytes=b"")


API = Api(
    key=36,
    versions=Versions(0, 2),
    request=SaslAuthenticateRequest,
    handle=handle,
    access=(),
    order=Order(writes=SeenState.ALL),
)
