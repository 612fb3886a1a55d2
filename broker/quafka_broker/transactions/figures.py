"""The figures of transactions for metrics, `/statusz` and `quafka doctor`, computed on request."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from quafka_broker.transactions.transaction import Transaction
from quafka_broker.transactions.transactions import BrokerTransactions


class TransactionFigures(NamedTuple):
    """The open transactions at an instant.

    Attributes:
        ids: the number of transactional ids.
        open: the number of open transactions.
        oldest: the one that has been open for longest, for `oldest_ms`.
        overdue_ms: how long the most overdue one has exceeded its timeout; 0: none has.
        unfinished: the number of transactions that other brokers have not ended yet.
        unfinished_ms: how long ago the first of them ended here; 0: all are finished.
        branches: the number of open branches of other brokers' transactions.
    """

    ids: int
    open: int
    oldest: Transaction | None
    oldest_ms: int
    overdue_ms: int
    unfinished: int
    unfinished_ms: int
    branches: int


def figures_of(transactions: BrokerTransactions, org: int | None = None) -> TransactionFigures:
    """The figures now, of one org or of all. Takes 0.1 µs for each open transaction."""
    table, now_ms = transactions.table, transactions.now_ms()
    open_ = [each for each in table.open.values() if org in (None, each.org)]
    since = [
        each.unfinished.since_ms
        for each in table.unfinished.values()
        if each.unfinished and org in (None, each.org)
    ]
    oldest = min(open_, key=attrgetter("start_ms"), default=None)
    deadline = min([found.start_ms + found.timeout_ms for found in open_], default=now_ms)
    return TransactionFigures(
        len(table) if org is None else table.count(org),
        len(open_),
        oldest,
        max(0, now_ms - oldest.start_ms) if oldest is not None else 0,
        max(0, now_ms - deadline),
        len(since),
        max(0, now_ms - min(since)) if since else 0,
        sum(org in (None, each.org) for each in table.branches.values()),
    )
