"""ListTransactions (key 66), versions 0-2: an empty list, as there are no transactions.

The response names the filtered states that Kafka does not know, as Kafka does.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.message import Versions
from quafka_proto.schema.transaction_admin import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_TRANSACTION_STATES = frozenset(
    (
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
        "Dead", "PrepareEpochFence",
    )
)  # fmt: skip


async def handle(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """List no transaction, and the unknown states of the filter."""
    unknown = [state for state in request.state_filters if state not in _TRANSACTION_STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)


API = Api(
    key=66,
    versions=Versions(0, 2),
    request=ListTransactionsRequest,
    handle=handle,
    order=Order(reads=State.TRANSACTIONS),
)
