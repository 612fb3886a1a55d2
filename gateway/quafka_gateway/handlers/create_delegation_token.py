"""CreateDelegationToken (key 38), versions 0-3: refused, since there are no tokens."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order
from quafka_gateway.handlers.token_refusal import NO_TIME, token_refusal
from quafka_proto.message import Versions
from quafka_proto.schema.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


async def handle(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Refuse the request."""
    principal = context.session.principal
    return CreateDelegationTokenResponse(
        error_code=token_refusal(context.session),
        principal_type=principal.kind,
        principal_name=principal.name,
        token_requester_principal_type=principal.kind,
        token_requester_principal_name=principal.name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )


API = Api(
    key=38,
    versions=Versions(0, 3),
    request=CreateDelegationTokenRequest,
    handle=handle,
    access=(),
    order=Order(),
    audited=True,
)
