"""DescribeDelegationToken (key 41), versions 0-3: refused, since there are no tokens."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order
from quafka_gateway.handlers.token_refusal import token_refusal
from quafka_proto.message import Versions
from quafka_proto.schema.delegation_tokens import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


async def handle(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Refuse the request."""
    return DescribeDelegationTokenResponse(error_code=token_refusal(context.session))


API = Api(
    key=41,
    versions=Versions(0, 3),
    request=DescribeDelegationTokenRequest,
    handle=handle,
    access=(),
    order=Order(),
)
