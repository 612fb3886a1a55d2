"""Transactions: a page of the list, one of them, and those that hang."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_client import transactions
from quafka_client.cluster import ClientCluster
from quafka_client.transactions import TransactionSummary
from quafka_console.data.paging import PAGE_ROWS, PageOf, page_of

_OVERDUE_SECONDS = 5.0
"""A broker aborts a transaction within a second of its timeout."""


@dataclass(frozen=True, slots=True)
class TransactionQuery:
    """A view of the list. `state`: empty: any. `open_only`: only open transactions."""

    search: str = ""
    state: str = ""
    open_only: bool = False
    number: int = 0
    size: int = PAGE_ROWS


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """A page of transactional ids, the longest open transaction first; how many are open, and how
    many of these hang."""

    page: PageOf[TransactionSummary]
    open: int
    hanging: int


async def transaction_page(
    cluster: ClientCluster, query: TransactionQuery, now_ms: int
) -> TransactionPage:
    """A page of the transactional ids that the user may describe. Raises ClientError."""
    every = await transactions.summaries(cluster, (), None, now_ms)
    chosen = [
        each
        for each in every
        if query.state.lower() in ("", each.state.lower())
        and (not query.open_only or each.open_seconds is not None)
    ]
    cut = page_of(
        chosen,
        query.search,
        lambda each: (each.transactional_id, str(each.producer_id)),
        query.number,
        query.size,
    )
    page = PageOf(cut.rows, len(every), cut.matching, cut.number, cut.size)
    return TransactionPage(
        page,
        sum(each.open_seconds is not None for each in every),
        sum(hangs(each) for each in every),
    )


def hangs(found: TransactionSummary) -> bool:
    """Whether a transaction is open though its timeout has passed: nobody may end it."""
    open_for, timeout = found.open_seconds, found.timeout_seconds
    return open_for is not None and timeout is not None and open_for > timeout + _OVERDUE_SECONDS
