"""DescribeTransactions (key 65), version 0: the state of transactional ids (KIP-664).

An id that the request names twice is described once.
"""

from __future__ import annotations

from collections.abc import Collection

from quafka_gateway.cluster.cluster import RouteBy
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_TOPIC, DESCRIBE_TRANSACTION, denied
from quafka_gateway.handlers.items import Items, Refused
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.transactions import DescribedTransaction, DescribeTransactions
from quafka_proto.message import Versions
from quafka_proto.schema.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
    TransactionTopicData,
)


def _failed(transactional_id: str, code: int, refusal: str) -> DescribedTransaction:
    """Kafka's defaults: of an id that the client may not know, every number is 0."""
    if refusal:
        return DescribedTransaction(
            transactional_id, code, start_ms=0, producer_id=0, producer_epoch=0
        )
    return DescribedTransaction(transactional_id, code)


_TRANSACTIONS = Items[str, DescribedTransaction](
    span="gateway.kafka.describe_transactions",
    right=DESCRIBE_TRANSACTION,
    route=RouteBy.TRANSACTION,
    failed=_failed,
    refused=Refused.LAST,
)


async def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each transactional id of the request."""
    found = await _TRANSACTIONS.answers(
        dict.fromkeys(request.transactional_ids),
        DescribeTransactions,
        lambda resp: resp.transactions,
        context,
    )
    topics = (topic.topic for each in found for topic in each.topics or ())
    hidden_topics = await denied(topics, DESCRIBE_TOPIC, context)
    states = await listed(_state(each, hidden_topics) for each in found)
    return DescribeTransactionsResponse(transaction_states=states)


API = Api(
    key=65,
    versions=Versions(0, 0),
    request=DescribeTransactionsRequest,
    handle=handle,
    items=_TRANSACTIONS,
    access=(DESCRIBE_TRANSACTION, DESCRIBE_TOPIC),
    order=Order(reads=SeenState.TRANSACTIONS | SeenState.TOPICS),
    response_length=ResponseLength.LONG,
)


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
            TransactionTopicData(topic=topic.topic, partitions=topic.partitions)
            for topic in found.topics or ()
            if topic.topic not in hidden
        ],
    )
