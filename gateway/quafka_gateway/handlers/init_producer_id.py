"""InitProducerId (key 22), versions 0-6: ids of idempotent and of transactional producers.

With a transactional id, the answer fences every earlier producer of the id, and what that producer
left open is aborted before. Two-phase commit (KIP-939, version 6) is refused, as by Kafka if it is
disabled.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    IDEMPOTENT_WRITE,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
    may_on_cluster,
)
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.transaction_errors import NewErrors
from quafka_mesh_ops.ops.records import InitProducerId
from quafka_mesh_ops.ops.transactions import InitTransactions, TransactionalProducer
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse

_ERRORS = NewErrors(fenced=4, abortable=5)


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Assign a producer id, or the next epoch of the client's producer id (KIP-360)."""
    refusal = _denial(request, context)
    if refusal:
        return _refused(refusal)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _transactional(request, request.transactional_id, context)
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
    versions=Versions(0, 6),
    request=InitProducerIdRequest,
    handle=handle,
    access=(WRITE_TRANSACTION, IDEMPOTENT_WRITE, WRITE_TOPIC),
    order=Order(
        # It aborts the transaction that an earlier producer left open.
        writes=SeenState.PRODUCERS | SeenState.TRANSACTIONS | SeenState.RECORDS | SeenState.OFFSETS
    ),
)


def _denial(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode:
    if request.transactional_id is not None:
        if context.may(WRITE_TRANSACTION, request.transactional_id):
            return ErrorCode.NONE
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    access = context.access
    if access is None or access.allows_any(WRITE_TOPIC):
        return ErrorCode.NONE
    if may_on_cluster(IDEMPOTENT_WRITE, context):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def _transactional(
    request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> InitProducerIdResponse:
    if not transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    op = InitTransactions(
        TransactionalProducer(
            transactional_id, request.producer_id, request.producer_epoch, context.connection
        ),
        request.transaction_timeout_ms,
        request.enable_2pc,
        request.keep_prepared_txn,
    )
    with context.child("gateway.kafka.init_transactions") as span:
        answer = await context.tenant.transactions.init(op, span.context)
    if answer.error_code:
        return _refused(_ERRORS.code(answer.error_code, context.version))
    if context.trace is not None:
        context.tenant.transaction_traces.begin(answer.producer_id, context.trace)
    return InitProducerIdResponse(
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        ongoing_txn_producer_id=answer.ongoing_producer_id,
        ongoing_txn_producer_epoch=answer.ongoing_producer_epoch,
    )


def _refused(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
