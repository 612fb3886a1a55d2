"""ListTransactions (key 66), versions 0-2: transactional ids, filtered (KIP-664).

By state and producer id, from version 1 on by the time since a transaction began (KIP-994), from
version 2 on by a pattern that a whole transactional id must match (KIP-1152). The response names
the filtered states that Kafka does not know.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_TRANSACTION, denied
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.transactions import ListedTransaction, ListTransactions
from quafka_proto.errors import ErrorCode
from quafka_proto.linear_pattern import LinearPattern, PatternError
from quafka_proto.message import Versions
from quafka_proto.schema.transaction_admin import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
)

_STATES = frozenset(
    (
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
        "Dead", "PrepareEpochFence",
    )
)  # fmt: skip


async def handle(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """List the transactional ids that match every filter, and the unknown states of the filter."""
    states = await listed(state for state in request.state_filters if state in _STATES)
    unknown = await listed(state for state in request.state_filters if state not in _STATES)
    pattern: LinearPattern | None = None
    if request.transactional_id_pattern:
        try:
            pattern = LinearPattern(request.transactional_id_pattern)
        except PatternError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    op = ListTransactions(states, request.producer_id_filters, request.duration_filter)
    with context.child("gateway.kafka.list_transactions") as span:
        try:
            answer = await context.tenant.transactions.list_all(op, span.context)
        except BrokerUnavailableError as e:
            return ListTransactionsResponse(error_code=e.code)
    open_ones = answer.transactions
    ids = (each.transactional_id for each in open_ones)
    hidden = await denied(ids, DESCRIBE_TRANSACTION, context)
    if hidden:
        open_ones = await listed(e for e in open_ones if e.transactional_id not in hidden)
    found = await in_slices(_matching(open_ones, pattern))
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


API = Api(
    key=66,
    versions=Versions(0, 2),
    request=ListTransactionsRequest,
    handle=handle,
    access=(DESCRIBE_TRANSACTION,),
    order=Order(reads=SeenState.TRANSACTIONS),
    response_length=ResponseLength.LONG,
)


def _matching(
    listed: Iterable[ListedTransaction], pattern: LinearPattern | None
) -> Generator[None, None, list[ListTransactionsTransactionState]]:
    found: list[ListTransactionsTransactionState] = []
    for each in listed:
        if pattern is None or (yield from pattern.matches(each.transactional_id)):
            found.append(
                ListTransactionsTransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state,
                )
            )
        yield
    return found
