"""DeleteAcls (key 31), versions 0-3: SECURITY_DISABLED, as Kafka answers without an authorizer."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, AUTHORIZER_DISABLED, NO_AUTHORIZER
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.message import Versions
from quafka_proto.schema.acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Refuse each filter."""
    refusal = DeleteAclsFilterResult(error_code=AUTHORIZER_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


API = Api(
    key=31,
    versions=Versions(0, 3),
    request=DeleteAclsRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(writes=State.ACLS),
    audited=True,
)
