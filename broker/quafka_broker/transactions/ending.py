"""The end of a transaction: one group of entries with the event, the offsets, and the markers.

The control batch of a transaction is identical in all its partitions: its checksum does not cover
offset and leader epoch. So a marker costs an entry's header and an index row, and the whole end one
write and one sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from quafka_broker.groups.offsets import GroupOffsets
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.transactions.branch import Branch
from quafka_broker.transactions.events import Ended
from quafka_broker.transactions.journal import TransactionJournal
from quafka_broker.transactions.rules import EndPlan
from quafka_broker.transactions.states import TransactionalIdState
from quafka_broker.transactions.transaction import NO_EPOCH, NO_ID, Transaction
from quafka_broker.wal.commit_group import GroupedBatch
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_proto.record_codec import MarkerType, TransactionMarker, build_marker
from quafka_proto.records import read_header

log = logging.getLogger("quafka.broker.transactions")


Settles = list[tuple[int, Callable[[int | None], None]]]
"""Called with the offset of the entry at a place of the group, or with None."""


class _Open(NamedTuple):
    """The partitions with records of a transaction. `places`: as in `Ended.partitions`."""

    partitions: list[Partition]
    places: list[tuple[bytes, int, int, int]]


class Ending:
    """Ends transactions. For one event loop."""

    def __init__(
        self,
        wal: Log,
        journal: TransactionJournal,
        offsets: GroupOffsets,
        producers: Producers,
    ) -> None:
        self._wal = wal
        self._journal = journal
        self._offsets = offsets
        self._producers = producers
        self._waiting: dict[Transaction | Branch, asyncio.Future[None]] = {}
        self.committed = self.aborted = 0
        """Transactions that have ended since the start."""

    # --- appends on their way ---------------------------------------------------------------

    def landed(self, transaction: Transaction | Branch) -> None:
        """Note an append of the transaction that is in the log, or failed."""
        transaction.in_flight -= 1
        if not transaction.in_flight:
            waiting = self._waiting.pop(transaction, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    async def quiet(self, transaction: Transaction | Branch) -> None:
        """Wait until no append of the transaction is on its way. Only within its turn."""
        while transaction.in_flight:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[transaction] = waiting
            await waiting

    # --- the end ----------------------------------------------------------------------------

    async def end(
        self,
        transaction: Transaction,
        plan: EndPlan,
        session: tuple[int, int],
        *,
        commit: bool,
        by_client: bool,
    ) -> None:
        """End a transaction, within its turn; its producer continues with this id and epoch.

        Raises:
            StorageError: it is still open.
        """
        before = transaction.state
        transaction.by_client = by_client
        transaction.move_to(
            TransactionalIdState.PREPARE_COMMIT if commit else TransactionalIdState.PREPARE_ABORT
        )
        try:
            await self.quiet(transaction)
            producer_id = transaction.producer_id
            open_ = self._open_partitions(transaction.partitions, producer_id)
            settles: Settles = []
            members = await self._offset_members(transaction, settles) if commit else []
            event = Ended(
                *transaction.key, producer_id, plan.marker_epoch, commit, *session,
                plan.last_epoch, producer_id if session[0] != producer_id else NO_ID,
                open_.places,
                _records_of(members),
                by_client, clock.time_ns() // 1_000_000,
                transaction.number if transaction.elsewhere else 0,
                sorted(set(transaction.elsewhere.values())),
            )  # fmt: skip
            await self._append(event, members, open_.partitions, settles)
        except BaseException:
            if transaction.is_ending:  # else the end is in the log, and only its caller is gone
                transaction.state = (
                    TransactionalIdState.ONGOING if transaction.start_ms >= 0 else before
                )
            raise
        self.committed += commit
        self.aborted += not commit

    async def end_orphans(
        self, org: int, producer_id: int, epoch: int, ids: Sequence[PartitionId], *, commit: bool
    ) -> None:
        """End a producer's open transactions in partitions that no transactional id knows.

        Raises:
            StorageError: it is still open.
        """
        open_ = self._open_partitions(ids, producer_id)
        if open_.partitions:
            event = _nameless(org, producer_id, epoch, open_, [], commit=commit)
            await self._append(event, [], open_.partitions, [])

    async def end_branch(self, branch: Branch, epoch: int, *, commit: bool) -> None:
        """End a branch with the outcome at its home.

        Raises:
            StorageError: it is still open.
        """
        open_ = self._open_partitions(branch.partitions, branch.producer_id)
        settles: Settles = []
        offsets = await self._offset_members(branch, settles) if commit else []
        event = _nameless(
            branch.org, branch.producer_id, epoch, open_, offsets, commit=commit,
            number=branch.number,
        )  # fmt: skip
        await self._append(event, offsets, open_.partitions, settles)

    def _open_partitions(
        self, ids: Sequence[PartitionId] | dict[PartitionId, str], producer_id: int
    ) -> _Open:
        found = _Open([], [])
        find = self._wal.partitions.find
        for id_ in ids:
            partition = find(id_)
            if partition is not None and partition.transactions is not None:
                first = partition.transactions.first_of(producer_id)
                if first is not None:
                    _, topic_hash, number, generation = id_
                    found.partitions.append(partition)
                    found.places.append((topic_hash, number, generation, first))
        return found

    async def _offset_members(
        self,
        transaction: Transaction | Branch,
        settles: Settles,
    ) -> list[GroupedBatch]:
        members: list[GroupedBatch] = []
        for group, commit in list(transaction.groups.items()):
            if commit.offsets:
                made, settle = await self._offsets.commit_as_members(transaction.org, group, commit)
                settles.append((len(members), settle))
                members += made
        return members

    async def _append(
        self,
        event: Ended,
        offsets: list[GroupedBatch],
        partitions: list[Partition],
        settles: Settles,
    ) -> None:
        kind = MarkerType.COMMIT if event.commit else MarkerType.ABORT
        data = build_marker(
            TransactionMarker(kind, 0), 0, event.at_ms, event.producer_id, event.epoch
        )
        header, marker = read_header(data), memoryview(data)
        members = offsets + [GroupedBatch(partition, header, marker) for partition in partitions]

        def settled(found: Sequence[int] | None) -> None:
            for place, settle in settles:
                settle(None if found is None else found[1 + place])
            if found is not None:
                ended = [partition.id for partition in partitions]
                self._producers.fence(ended, event.producer_id, event.epoch)

        await self._journal.append([event], settled, members)


def _nameless(
    org: int,
    producer_id: int,
    epoch: int,
    open_: _Open,
    offsets: Sequence[GroupedBatch],
    *,
    commit: bool,
    number: int = 0,
) -> Ended:
    return Ended(
        org, "", producer_id, epoch, commit, NO_ID, NO_EPOCH, NO_EPOCH, NO_ID,
        open_.places, _records_of(offsets),
        False, clock.time_ns() // 1_000_000, number,
    )  # fmt: skip


def _records_of(members: Sequence[GroupedBatch]) -> int:
    return sum(member.header.record_count for member in members)
