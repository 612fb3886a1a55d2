"""DescribeClientQuotas (key 48), versions 0-1: an empty list, as there are no quotas yet."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.message import Versions
from quafka_proto.schema.quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


async def handle(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """List no quota."""
    return DescribeClientQuotasResponse(entries=[])


API = Api(
    key=48,
    versions=Versions(0, 1),
    request=DescribeClientQuotasRequest,
    handle=handle,
    order=Order(reads=State.QUOTAS),
)
