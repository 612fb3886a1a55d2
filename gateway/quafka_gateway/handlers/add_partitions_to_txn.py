"""AddPartitionsToTxn (key 24), versions 0-5: adds partitions to a transaction, before the produce.

Up to version 3 a client adds the partitions of its one transaction. Versions 4 and up are of
brokers: a batch of transactions, each to be added to or only verified (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Sequence
from itertools import repeat

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    CLUSTER_ACTION,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
    denied,
    may_on_cluster,
)
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.transaction_errors import NewErrors
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.transactions import AddPartitions, TransactionalProducer
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from quafka_telemetry.tracing import TraceContext

_FIRST_BATCHED = 4
_AT_A_TIME = 32
_ERRORS = NewErrors(fenced=2, abortable=5)


async def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Add the partitions to each transaction, durably; or verify that they are in it."""
    if context.version >= _FIRST_BATCHED and not may_on_cluster(CLUSTER_ACTION, context):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with context.child("gateway.kafka.add_partitions_to_txn") as span:
        if context.version < _FIRST_BATCHED:
            one = AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
            results = await _refused(one, context)
            if results is None:
                results = await _add(one, context, context.connection, span.context)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        found: list[AddPartitionsToTxnResult] = []
        for at in range(0, len(request.transactions), _AT_A_TIME):
            some = request.transactions[at : at + _AT_A_TIME]
            # A broker asks for its clients: their connections are not this one.
            answers = await asyncio.gather(*(_add(t, context, b"", span.context) for t in some))
            found += [
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=answer
                )
                for each, answer in zip(some, answers, strict=True)
            ]
    return AddPartitionsToTxnResponse(results_by_transaction=found)


API = Api(
    key=24,
    versions=Versions(0, 5),
    request=AddPartitionsToTxnRequest,
    handle=handle,
    access=(WRITE_TRANSACTION, WRITE_TOPIC, CLUSTER_ACTION),
    order=Order(reads=SeenState.TOPICS, writes=SeenState.TRANSACTIONS | SeenState.PRODUCERS),
    response_length=ResponseLength.BY_REQUEST,
)


async def _refused(
    transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> list[AddPartitionsToTxnTopicResult] | None:
    """The results of a client's transaction that is not allowed; None: it is."""
    topics = transaction.topics
    if not context.may(WRITE_TRANSACTION, transaction.transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return await in_slices(_results(topics, repeat(code), context.version))
    names = await denied((topic.name for topic in topics), WRITE_TOPIC, context)
    if not names:
        return None
    codes = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic.name in names
        else ErrorCode.OPERATION_NOT_ATTEMPTED
        for topic in topics
        for _ in topic.partitions
    )
    return await in_slices(_results(topics, codes, context.version))


async def _add(
    transaction: AddPartitionsToTxnTransaction,
    context: RequestContext,
    connection: bytes,
    trace: TraceContext | None,
) -> list[AddPartitionsToTxnTopicResult]:
    op = AddPartitions(
        TransactionalProducer(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            connection,
        ),
        await listed(PartitionsByTopic(each.name, each.partitions) for each in transaction.topics),
        transaction.verify_only,
    )
    codes = await context.tenant.transactions.add_partitions(op, trace)
    return await in_slices(_results(transaction.topics, codes, context.version))


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Iterable[int], version: int
) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    return topic_results(
        ((topic.name, topic.partitions) for topic in topics),
        (_ERRORS.code(code, version) for code in codes),
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnTopicResult,
    )
