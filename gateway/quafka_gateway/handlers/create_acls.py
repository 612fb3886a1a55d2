"""CreateAcls (key 30), versions 0-3: SECURITY_DISABLED, as Kafka answers without an authorizer."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, AUTHORIZER_DISABLED, NO_AUTHORIZER
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.message import Versions
from quafka_proto.schema.acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Create none: an ACL that nothing enforces would mislead."""
    refusal = AclCreationResult(error_code=AUTHORIZER_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refusal] * len(request.creations))


API = Api(
    key=30,
    versions=Versions(0, 3),
    request=CreateAclsRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(writes=State.ACLS),
    audited=True,
)
