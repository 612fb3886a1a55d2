"""DescribeTransactions (key 65), version 0: TRANSACTIONAL_ID_NOT_FOUND for every id.

There are no transactions yet.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


async def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Answer an error for each transactional id."""
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    states = [
        TransactionState(error_code=code, transactional_id=each)
        for each in request.transactional_ids
    ]
    return DescribeTransactionsResponse(transaction_states=states)


API = Api(
    key=65,
    versions=Versions(0, 0),
    request=DescribeTransactionsRequest,
    handle=handle,
    order=Order(reads=State.TRANSACTIONS),
)
