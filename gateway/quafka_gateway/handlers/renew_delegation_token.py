"""RenewDelegationToken (key 39), versions 0-2: refused, since there are no tokens."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order
from quafka_gateway.handlers.token_refusal import NO_TIME, token_refusal
from quafka_proto.message import Versions
from quafka_proto.schema.delegation_tokens import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def handle(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Refuse the request."""
    return RenewDelegationTokenResponse(
        error_code=token_refusal(context.session), expiry_timestamp_ms=NO_TIME
    )


API = Api(
    key=39,
    versions=Versions(0, 2),
    request=RenewDelegationTokenRequest,
    handle=handle,
    access=(),
    order=Order(),
)
