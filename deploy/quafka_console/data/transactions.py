"""Transactions: a page of the list, one of them, and those that hang."""

from __future__ import annotations

from quafka_client import transactions
from quafka_client.cluster import ClientCluster
from quafka_client.transactions import TransactionSummary
from quafka_console.data.paging import PAGE_ROWS, PageOf, page_of

_OVERDUE_SECONDS = 5.0
"""A broker aborts a transaction within a second of its timeout."""


async def transaction_page(
    cluster: ClientCluster, search: str, number: int, now_ms: int, size: int = PAGE_ROWS
) -> PageOf[TransactionSummary]:
    """A page of the transactional ids that the user may describe, the longest open transaction
    first. Raises ClientError.
    """
    every = await transactions.summaries(cluster, (), None, now_ms)
    return page_of(
        every, search, lambda each: (each.transactional_id, str(each.producer_id)), number, size
    )


def hangs(found: TransactionSummary) -> bool:
    """Whether a transaction is open though its timeout has passed: nobody may end it."""
    open_for, timeout = found.open_seconds, found.timeout_seconds
    return open_for is not None and timeout is not None and open_for > timeout + _OVERDUE_SECONDS
