"""Decides which batches may be written, by the transactions of their producers.

| the batch | answer |
| --- | --- |
| transactional, in a request without a transactional id | TRANSACTIONAL_ID_AUTHORIZATION_FAILED |
| of a producer id that is not the transactional id's | INVALID_PRODUCER_ID_MAPPING |
| of another epoch | INVALID_PRODUCER_EPOCH |
| on a connection that its producer has abandoned | NOT_LEADER_OR_FOLLOWER |
| its transaction is ending | INVALID_TXN_STATE |
| its transaction does not have the partition | TRANSACTION_ABORTABLE |
| the previous transaction has not ended at all brokers | NOT_ENOUGH_REPLICAS, which clients retry |
| not transactional, but its producer has an open transaction in the partition | INVALID_TXN_STATE |

With KIP-890 (Produce 12) a batch adds its partition to the transaction. The event that records this
is in the log before the batch, usually in the same write, and costs no extra sync.

`branches.py` admits batches of transactions that another broker coordinates. `prepare` does the
asynchronous work; usually there is none (`is_prepared`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from quafka_broker.partitions.outcome import Outcome, Settle
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.sources.source import ProduceFacts, RecordsRefusedError
from quafka_broker.transactions import rules
from quafka_broker.transactions.branches import Branches, Joining
from quafka_broker.transactions.connections import ConnectedRequestKind
from quafka_broker.transactions.ending import Ending
from quafka_broker.transactions.events import added
from quafka_broker.transactions.finishing import Finishing
from quafka_broker.transactions.journal import TransactionJournal
from quafka_broker.transactions.table import TransactionTable
from quafka_broker.transactions.transaction import Transaction
from quafka_proto.errors import ErrorCode
from quafka_proto.records import TRANSACTIONAL, BatchHeader


class BatchAdmission:
    """Admits the batches of producers that have transactional ids. For one event loop."""

    def __init__(
        self,
        table: TransactionTable,
        journal: TransactionJournal,
        ending: Ending,
        branches: Branches,
        finishing: Finishing,
        most_partitions: int,
        now_ms: Callable[[], int],
        began: Callable[[Transaction], None],
    ) -> None:
        """`began` is called with a transaction that a batch may have begun."""
        self._table = table
        self._journal = journal
        self._ending = ending
        self._branches = branches
        self._finishing = finishing
        self._most = most_partitions
        self._now_ms = now_ms
        self._began = began
        self.fenced = 0
        """Batches of fenced producers since the start."""

    def concerns(self, header: BatchHeader) -> bool:
        """Whether a batch is transactional, or of a producer that has a transactional id."""
        if header.attributes & TRANSACTIONAL:
            return True
        id_, table = header.producer_id, self._table
        return id_ in table.by_producer or id_ in table.branches

    def is_prepared(self, request: ProduceFacts, batches: Callable[[], Joining]) -> bool:
        """Whether `prepare` has nothing to do."""
        if self._branches.is_elsewhere(request):
            return self._branches.are_joined(batches())
        return (request.org, request.transactional_id) not in self._table.unfinished

    async def prepare(self, request: ProduceFacts, batches: Joining) -> RecordsRefusedError | None:
        """Wait on behalf of `admit`; returns the refusal of the request's transactional batches."""
        if self._branches.is_elsewhere(request):
            return await self._branches.join(request, batches)
        await self._finishing.finished((request.org, request.transactional_id))
        return None

    def admit(
        self, header: BatchHeader, partition: Partition, topic: str, request: ProduceFacts | None
    ) -> Callable[[Settle], Settle] | None:
        """A function that counts a transactional batch as on its way; None for other batches.

        Raises:
            RecordsRefusedError: see the table above.
        """
        if not header.attributes & TRANSACTIONAL:
            open_ = partition.transactions
            if open_ is not None and open_.first_of(header.producer_id) is not None:
                raise RecordsRefusedError(
                    ErrorCode.INVALID_TXN_STATE, "the producer has an open transaction here"
                )
            return None
        if request is None or not request.transactional_id:
            raise RecordsRefusedError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no transactional id is given"
            )
        if self._branches.is_elsewhere(request):
            return self._branches.admit(header, partition.id, request)
        found = self._find(header, request)
        id_ = partition.id
        if id_ in found.partitions or id_ in found.joining:
            return partial(self._counted, found)
        if not request.implicit:
            raise RecordsRefusedError(
                ErrorCode.TRANSACTION_ABORTABLE, "the transaction does not have the partition"
            )
        if found.size >= self._most:
            raise RecordsRefusedError(
                ErrorCode.POLICY_VIOLATION, f"the transaction has {found.size} partitions"
            )
        self._join(found, {id_: topic})
        return partial(self._counted, found)

    def _find(self, header: BatchHeader, request: ProduceFacts) -> Transaction:
        found = rules.check_producer(
            self._table.entries.get((request.org, request.transactional_id)),
            header.producer_id,
            header.producer_epoch,
        )
        if found is ErrorCode.PRODUCER_FENCED:
            self.fenced += 1
            found = ErrorCode.INVALID_PRODUCER_EPOCH
        elif isinstance(found, Transaction) and found.initializing:
            found = ErrorCode.INVALID_PRODUCER_EPOCH
        if isinstance(found, ErrorCode):
            raise RecordsRefusedError(found, rules.OLD_EPOCH)
        if not self._is_current(found, request):
            raise RecordsRefusedError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the producer has left this connection"
            )
        if found.unfinished is not None:
            raise RecordsRefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction before is ending at other brokers"
            )
        if found.is_ending:
            if found.by_client:
                raise RecordsRefusedError(ErrorCode.INVALID_TXN_STATE, "the transaction is ending")
            raise RecordsRefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH, "the transaction is aborted"
            )
        return found

    def join_all(
        self, request: ProduceFacts, batches: Sequence[tuple[BatchHeader, PartitionId, str]]
    ) -> None:
        """Add the partitions of a request's batches with one event, as `admit` would.

        `batches`: the header, the partition and the topic of each. Invalid batches are left to
        `admit`, which refuses them.
        """
        found = self._table.entries.get((request.org, request.transactional_id))
        if found is None or found.initializing or found.is_ending or found.unfinished is not None:
            return
        if self._branches.is_elsewhere(request):
            return
        session = found.producer_id, found.epoch
        new = {
            id_: topic
            for header, id_, topic in batches
            if header.attributes & TRANSACTIONAL
            and (header.producer_id, header.producer_epoch) == session
            and id_ not in found.partitions
            and id_ not in found.joining
        }
        if new and found.size + len(new) <= self._most and self._is_current(found, request):
            self._join(found, new)

    @staticmethod
    def _is_current(found: Transaction, request: ProduceFacts) -> bool:
        return found.connections[ConnectedRequestKind.PRODUCE].admit(request.connection)

    def _join(self, found: Transaction, new: Mapping[PartitionId, str]) -> None:
        """Add partitions to a transaction; `new` gives their topics."""
        found.joining.update(new)
        found.in_flight += 1

        def settled(offsets: Sequence[int] | None) -> None:
            for id_ in new:
                del found.joining[id_]
            self._ending.landed(found)
            if offsets is not None:
                self._began(found)

        rows = [(*id_[1:], topic) for id_, topic in new.items()]
        self._journal.append(added(found.key, rows, (), self._now_ms()), settled)

    def _counted(self, found: Transaction, inner: Settle) -> Settle:
        """Count a batch of a transaction as on its way until its outcome is known."""
        found.in_flight += 1
        return partial(self._settle, found, inner)

    def _settle(self, found: Transaction, inner: Settle, outcome: Outcome) -> None:
        inner(outcome)
        self._ending.landed(found)
