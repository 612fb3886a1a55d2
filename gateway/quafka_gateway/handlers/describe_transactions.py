"""DescribeTransactions (key 65), version 0: the state of transactional ids (KIP-664).

An id that the request names twice is described once.
"""

from __future__ import annotations

from collections.abc import Collection

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_TOPIC, DESCRIBE_TRANSACTION, denied
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, State
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.transactions import DescribedTransaction
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


async def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each transactional id of the request."""
    hidden = await denied(request.transactional_ids, DESCRIBE_TRANSACTION, context)
    named = dict.fromkeys(request.transactional_ids)
    ids = await listed(each for each in named if each not in hidden)
    with context.child("gateway.kafka.describe_transactions") as span:
        found = await context.tenant.transactions.describe(ids, span.context) if ids else []
    topics = (topic.topic for each in found for topic in each.topics or ())
    hidden_topics = await denied(topics, DESCRIBE_TOPIC, context)
    states = await listed(_state(each, hidden_topics) for each in found)
    refused = await listed(map(_refused, hidden))
    return DescribeTransactionsResponse(transaction_states=states + refused)


API = Api(
    key=65,
    versions=Versions(0, 0),
    request=DescribeTransactionsRequest,
    handle=handle,
    access=(DESCRIBE_TRANSACTION, DESCRIBE_TOPIC),
    order=Order(reads=State.TRANSACTIONS | State.TOPICS),
    response_length=ResponseLength.LONG,
)


def _refused(transactional_id: str) -> TransactionState:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return TransactionState(error_code=code, transactional_id=transactional_id)


def _state(found: DescribedTransaction, hidden: Collection[str]) -> TransactionState:
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
            if topic.topic not in hidden
        ],
    )
