"""EndTxn (key 26), versions 0-5: commits or aborts a transaction; answered when it is durable.

From version 5 on the answer has the producer's next epoch, and a new producer id when its epochs
are used up (KIP-890).
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import WRITE_TRANSACTION
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.transaction_errors import NewErrors
from quafka_mesh_ops.ops.transactions import EndTransaction, TransactionalProducer
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.transactions import EndTxnRequest, EndTxnResponse
from quafka_telemetry import semconv

_FIRST_WITH_EPOCH = 5
_ERRORS = NewErrors(fenced=2, abortable=4)


async def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """End the producer's transaction."""
    if not context.may(WRITE_TRANSACTION, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    bumps_epoch = context.version >= _FIRST_WITH_EPOCH
    op = EndTransaction(
        TransactionalProducer(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            context.connection,
        ),
        request.committed,
        bumps_epoch,
    )
    with context.child("gateway.kafka.end_txn") as span:
        span.set({semconv.COMMITTED: request.committed})
        answer = await context.tenant.transactions.end(op, span.context)
    if answer.error_code or not bumps_epoch:
        return EndTxnResponse(error_code=_ERRORS.code(answer.error_code, context.version))
    if answer.producer_id != request.producer_id and context.trace is not None:
        context.tenant.transaction_traces.continue_as(request.producer_id, answer.producer_id)
    return EndTxnResponse(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


API = Api(
    key=26,
    versions=Versions(0, 5),
    request=EndTxnRequest,
    handle=handle,
    access=(WRITE_TRANSACTION,),
    order=Order(
        writes=SeenState.TRANSACTIONS
        | SeenState.PRODUCERS
        | SeenState.RECORDS
        | SeenState.OFFSETS
        | SeenState.GROUPS
    ),
)
