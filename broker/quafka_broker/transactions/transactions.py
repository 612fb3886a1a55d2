"""Assembles the transactions of a broker: parts, start, and background work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice

from quafka_broker.groups.offsets import GroupOffsets
from quafka_broker.journals.internal_topics import TRANSACTIONS
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.transactions.admission import BatchAdmission
from quafka_broker.transactions.branches import Branches
from quafka_broker.transactions.coordinator import TransactionCoordinator
from quafka_broker.transactions.ending import Ending
from quafka_broker.transactions.finishing import Finishing
from quafka_broker.transactions.journal import TransactionJournal
from quafka_broker.transactions.limits import TransactionLimits
from quafka_broker.transactions.peers import Peers
from quafka_broker.transactions.states import TransactionalIdState
from quafka_broker.transactions.table import Key, TransactionTable
from quafka_broker.transactions.transaction import Transaction
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_loop.slices import Slices

log = logging.getLogger("quafka.broker.transactions")

_TICK_SECONDS = 0.25
_EXPIRY_SECONDS = 60.0
_RESOLVE_SECONDS = 5.0
_PER_SLICE = 500
_AT_ONCE = 64
_EVENTS_AN_ID = 8
"""Events per id above which the journal is shortened; a restated id has two to four."""
_LAST_EPOCH = 0x7FFF
_RESTATE = 1 << 62
"""Events that are enough to restate all ids."""


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000


class BrokerTransactions:
    """All transactions of one broker. For one event loop."""

    def __init__(
        self,
        wal: Log,
        limits: TransactionLimits,
        offsets: GroupOffsets,
        producers: Producers,
        allocate_id: Callable[[int], Awaitable[int]],
        begin_at: Callable[[int], Awaitable[None]],
        peers: Peers,
        *,
        now_ms: Callable[[], int] = _now_ms,
        events_kept: int = 10_000,
    ) -> None:
        """`begin_at` moves the start of the journal, durably; `events_kept`: see `shorten`."""
        self._wal = wal
        self._begin_at = begin_at
        self.events_kept = events_kept
        self.limits = limits
        self.now_ms = now_ms
        self.table = TransactionTable()
        self.journal = TransactionJournal(wal, self.table)
        self.ending = Ending(wal, self.journal, offsets, producers)
        self.finishing = Finishing(self.table, self.journal, self.ending.landed, peers)
        self.coordinator = TransactionCoordinator(
            self.table, self.journal, self.ending, limits, self.finishing, allocate_id,
            now_ms=now_ms,
        )  # fmt: skip
        self.branches = Branches(self.table, self.journal, self.ending, limits, now_ms, peers)
        self.admission = BatchAdmission(
            self.table, self.journal, self.ending, self.branches, self.finishing,
            limits.partitions, now_ms,
            self.coordinator.began,
        )  # fmt: skip
        self.timed_out = 0
        """Transactions aborted by a timeout since the start."""

    @property
    def fenced(self) -> int:
        """Requests and batches refused since the start because a later session has begun."""
        return self.coordinator.fenced + self.admission.fenced

    # --- life -------------------------------------------------------------------------------

    @property
    def node_id(self) -> str:
        """The node id of this broker, or the name of this shard."""
        return self.branches.peers.node_id

    @property
    def others(self) -> tuple[str, ...]:
        """The node ids of the other brokers whose partitions transactions may have."""
        return self.branches.peers.others

    async def start(self) -> None:
        """Rebuild the table from the log, after registry and groups.

        Raises:
            StorageError: the log cannot be read.
            ValueError, TypeError, IndexError: an event cannot be decoded.
        """
        await self.journal.replay()
        if self._wal.partitions.is_damaged(TRANSACTIONS):
            self.journal.written = _RESTATE  # the next checkpoint may be the only complete copy
        for found in list(self.table.open.values()):
            self.coordinator.began(found)
        await self._abort_orphans()

    async def _abort_orphans(self) -> None:
        """Abort transactions that are open in partitions but not in the table.

        The events of such a transaction are lost to damage. Its readers would wait for ever.
        """
        orphans: dict[tuple[int, int], list[PartitionId]] = {}
        slices = Slices(_PER_SLICE)
        for id_ in self._wal.partitions.ids():
            await slices.done()
            partition = self._wal.partitions.find(id_)
            if partition is None or partition.transactions is None:
                continue
            for producer_id, first in partition.transactions.open:
                branch = self.table.branches.get(producer_id)
                if branch is not None:
                    branch.partitions.setdefault(id_, "")
                    continue
                found = self.table.by_producer.get(producer_id)
                if found is not None and found.state is TransactionalIdState.ONGOING:
                    found.partitions.setdefault(id_, "")
                    continue
                log.error(
                    "partition %s: the transaction of producer %d from offset %d on lacks its "
                    "end, which damage has taken; it is aborted", id_.key, producer_id, first,
                )  # fmt: skip
                orphans.setdefault((id_.org_id, producer_id), []).append(id_)
        for (org, producer_id), ids in orphans.items():
            try:
                await self.ending.end_orphans(org, producer_id, _LAST_EPOCH, ids, commit=False)
            except StorageError as e:  # the next start tries again
                log.warning("a transaction without its events cannot be aborted now: %s", e)

    async def close(self) -> None:
        """Wait for the changes under way."""
        await self.coordinator.close()
        await self.branches.close()

    # --- background work --------------------------------------------------------------------

    async def run(self) -> None:
        """Abort transactions that are open for too long, and forget unused ids."""
        loop = asyncio.get_running_loop()
        expiry = loop.time()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                await self.abort_overdue()
                if loop.time() >= expiry:
                    expiry = loop.time() + _EXPIRY_SECONDS
                    await self.forget_unused()
                await self.shorten()
            except StorageError as e:
                log.warning("transactions cannot be aborted or forgotten now: %s", e)

    async def run_branches(self) -> None:
        """Make other brokers end their parts of transactions, and ask them about parts here."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.finishing.run())
            while True:
                await self.branches.resolve_old()
                await asyncio.sleep(_RESOLVE_SECONDS)

    async def abort_overdue(self) -> None:
        """Abort the transactions whose timeout has passed.

        Raises:
            StorageError: some are still open.
        """
        now = self.now_ms()

        def is_due(found: Transaction) -> bool:
            return found.deadline_ms <= now

        async def abort(found: Transaction) -> None:
            try:
                if await self.coordinator.abort(found.key, is_due):
                    self.timed_out += 1
                    log.info("transaction %r of org %d has timed out", found.name, found.org)
            finally:
                self.coordinator.began(found)  # the next one, or this one again

        while some := list(islice(self._due(now), _AT_ONCE)):
            await asyncio.gather(*map(abort, some))

    def _due(self, now: int) -> Iterator[Transaction]:
        """The open transactions with a deadline that has passed; some may have begun since."""
        while (key := self.coordinator.deadlines.pop(now)) is not None:
            found = self.table.entries.get(key)
            if found is not None and found.start_ms >= 0:
                yield found

    async def forget_unused(self) -> None:
        """Drop expired transactional ids.

        Raises:
            StorageError: some still exist.
        """
        before = self.now_ms() - self.limits.expiration_ms
        slices = Slices(_PER_SLICE)
        unused: list[Key] = []
        for key, found in list(self.table.entries.items()):
            if found.used_ms <= before and found.start_ms < 0:
                unused.append(key)
            await slices.done()
        await self._change_each(unused, self.coordinator.forget)

    async def _change_each(
        self, keys: Sequence[Key], change: Callable[[Key], Awaitable[None]]
    ) -> None:
        """Change ids, some at a time, which share a write. No timeout waits for all of them."""
        rest = iter(keys)
        while some := list(islice(rest, _AT_ONCE)):
            await self._wal.queue.wait_for_room()
            await asyncio.gather(*map(change, some))
            await self.abort_overdue()

    async def shorten(self) -> None:
        """Restate all ids once most events of the journal are superseded; older events are dead.

        Raises:
            StorageError: the journal was not shortened.
        """
        live = len(self.table) + len(self.table.branches)
        if self.journal.written <= max(self.events_kept, _EVENTS_AN_ID * live):
            return
        end = self._wal.partitions.get(TRANSACTIONS).high_watermark
        await self._change_each(list(self.table.entries), self.coordinator.restate)
        await self.branches.restate()
        self.journal.written = 0
        await self._begin_at(end)
