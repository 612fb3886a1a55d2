"""AddOffsetsToTxn (key 25), versions 0-4: adds a group's offsets to a transaction.

The offsets themselves follow with TxnOffsetCommit.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import READ_GROUP, WRITE_TRANSACTION
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.transaction_errors import NewErrors
from quafka_mesh_ops.ops.transactions import AddOffsets, TransactionalProducer
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_ERRORS = NewErrors(fenced=2, abortable=4)


async def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Add the group, durably."""
    if not context.may(WRITE_TRANSACTION, request.transactional_id):
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return AddOffsetsToTxnResponse(error_code=refusal)
    if not context.may(READ_GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    op = AddOffsets(
        TransactionalProducer(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            context.connection,
        ),
        request.group_id,
    )
    with context.child("gateway.kafka.add_offsets_to_txn") as span:
        code = await context.tenant.transactions.add_offsets(op, span.context)
    return AddOffsetsToTxnResponse(error_code=_ERRORS.code(code, context.version))


API = Api(
    key=25,
    versions=Versions(0, 4),
    request=AddOffsetsToTxnRequest,
    handle=handle,
    access=(WRITE_TRANSACTION, READ_GROUP),
    order=Order(writes=SeenState.TRANSACTIONS | SeenState.PRODUCERS),
)
