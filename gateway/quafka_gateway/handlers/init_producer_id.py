"""InitProducerId (key 22), versions 0-5: assigns ids to idempotent producers.

Transactional ids are refused with UNSUPPORTED_VERSION, which clients show unchanged: transactions
are not served.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_mesh_ops.ops.records import InitProducerId
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Assign a producer id, or the next epoch of the client's producer id (KIP-360)."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    op = InitProducerId(request.producer_id, request.producer_epoch)
    with context.child("gateway.kafka.init_producer_id") as span:
        answer = await context.tenant.topics.init_producer_id(op, span.context)
    return InitProducerIdResponse(
        error_code=answer.error_code,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


API = Api(
    key=22,
    versions=Versions(0, 5),
    request=InitProducerIdRequest,
    handle=handle,
    order=Order(writes=State.PRODUCERS | State.TRANSACTIONS),
)
