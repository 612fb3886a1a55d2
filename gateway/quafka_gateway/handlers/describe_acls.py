"""DescribeAcls (key 29), versions 0-3: SECURITY_DISABLED, as Kafka answers without an authorizer.

Without the API, tools would take the UNSUPPORTED_VERSION error for an old cluster.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import AUTHORIZER_DISABLED, DESCRIBE_CLUSTER, NO_AUTHORIZER
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.message import Versions
from quafka_proto.schema.acls import DescribeAclsRequest, DescribeAclsResponse


async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Answer that no ACL restricts anything."""
    return DescribeAclsResponse(error_code=AUTHORIZER_DISABLED, error_message=NO_AUTHORIZER)


API = Api(
    key=29,
    versions=Versions(0, 3),
    request=DescribeAclsRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER,),
    order=Order(reads=State.ACLS),
)
