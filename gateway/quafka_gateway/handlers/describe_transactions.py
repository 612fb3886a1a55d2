"""DescribeTransactions (key 65), version 0: the state of transactional ids (KIP-664).

An id that the request names twice is described once.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, State
from quafka_mesh_ops.ops.transactions import DescribedTransaction
from quafka_proto.message import Versions
from quafka_proto.schema.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from quafka_telemetry.slices import listed


async def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each transactional id of the request."""
    ids = list(dict.fromkeys(request.transactional_ids))
    with context.child("gateway.kafka.describe_transactions") as span:
        found = await context.tenant.transactions.describe(ids, span.context)
    return DescribeTransactionsResponse(transaction_states=await listed(map(_state, found)))


API = Api(
    key=65,
    versions=Versions(0, 0),
    request=DescribeTransactionsRequest,
    handle=handle,
    order=Order(reads=State.TRANSACTIONS | State.TOPICS),
    response_length=ResponseLength.LONG,
)


def _state(found: DescribedTransaction) -> TransactionState:
    return TransactionState(
        error_code=found.error_code,
        transactional_id=found.transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            TopicData(topic=topic.topic, partitions=topic.partitions)
            for topic in found.topics or ()
        ],
    )
