"""The journal of transactions: events in the internal topic `__quafka_transactions`.

Replaying the events in the order of the log gives the table of transactional ids. An event is
applied once it is durable, in the order of the log, even if its caller no longer waits.

Each checkpoint has a copy of the table, and a replay begins with the copy. The state of an id
depends only on the events since its last `Initialized` or `Ended`, so events that the copy already
includes may be applied again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any

from quafka_broker.journals.event_reader import Gap, read_values, verify
from quafka_broker.journals.internal_topics import TRANSACTIONS
from quafka_broker.partitions.errors import OffsetGoneError, StorageError
from quafka_broker.partitions.outcome import Outcome
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.transactions import events
from quafka_broker.transactions.events import Ended, Event
from quafka_broker.transactions.table import TransactionTable
from quafka_broker.wal.commit_group import GroupedBatch
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_loop.eager_task import DirectFuture
from quafka_loop.slices import Slices
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import BatchHeader, read_header

log = logging.getLogger("quafka.broker.transactions")

SECTION = "transactions/1"
"""Of a checkpoint: a block [offset], then blocks [values of the events that make ids' states].

The copy includes all events below the offset, and possibly some later ones.
"""

_PER_SLICE = 100
_BLOCK_BYTES = 64 << 10
"""The number of values in a block of the copy: each block costs a call of a thread."""


class TransactionJournal:
    """Makes events durable, and rebuilds the table."""

    def __init__(self, wal: Log, table: TransactionTable) -> None:
        self._wal = wal
        self._table = table
        self._applied = 0  # the table includes all events below this offset
        self.written = 0
        """Events since the journal was last shortened."""

    # --- reading ----------------------------------------------------------------------------

    async def replay(self) -> None:
        """Apply all events in the log.

        Raises:
            StorageError: the log cannot be read.
            ValueError, TypeError, IndexError: an event cannot be decoded.
        """
        partition = self._wal.partitions.get(TRANSACTIONS)
        start = self._load(self._wal.sections.kept(SECTION))
        await verify(self._wal, TRANSACTIONS, start)
        async for found in read_values(self._wal, TRANSACTIONS, max(start, partition.log_start)):
            if isinstance(found, Gap):
                log.error("events %d to %d of transactions are lost", found.first, found.end - 1)
                continue
            event = events.decode(found.data)
            self._table.apply(event)
            self.written += 1
            if isinstance(event, Ended):
                self._end_partitions(event, found.offset)
        # The log may have lost its last events without a trace; their offsets are not used again.
        if start > partition.high_watermark:
            self._wal.partitions.advance_log_start(TRANSACTIONS, start)
        self._applied = partition.high_watermark
        self._wal.sections.keep(SECTION, self._copy)

    def _load(self, blocks: list[list[Any]]) -> int:
        if not blocks:
            return 0
        for (values,) in blocks[1:]:
            for value in values:
                self._table.apply(events.decode(value))
        return int(blocks[0][0])

    def _end_partitions(self, event: Ended, offset: int) -> None:
        """End the transaction in partitions with damaged markers, for which readers wait."""
        try:
            first_id = self._wal.partitions.get(TRANSACTIONS).global_id_at(offset) + 1
        except (OffsetGoneError, IndexError):
            return
        first_id += event.offset_records
        for place, (hash_, number, generation, first) in enumerate(event.partitions):
            found = self._wal.partitions.find(PartitionId(event.org, hash_, number, generation))
            open_ = found.transactions if found is not None else None
            if found is None or open_ is None or open_.first_of(event.producer_id) != first:
                continue
            marker = found.first_offset_from(first_id + place)
            open_.end(event.producer_id, marker, aborted=not event.commit)

    async def _copy(self) -> AsyncGenerator[Sequence[Any]]:
        """Copy the table for a checkpoint. Changes during the copy are in the log."""
        yield [self._applied]
        slices = Slices(_PER_SLICE)
        block: list[bytes] = []
        size = 0
        for made in self._restated():
            block += map(events.encode, made)
            size += sum(map(len, block[-len(made) :]))
            if size >= _BLOCK_BYTES:
                yield [block]
                block, size = [], 0
            await slices.done(len(made))
        yield [block]

    def _restated(self) -> Iterator[Sequence[Event]]:
        """The events that rebuild each id's and each branch's present state."""
        for key in list(self._table.entries):
            found = self._table.entries.get(key)
            if found is not None:
                yield found.restated()
        for branch in list(self._table.branches.values()):
            if made := branch.restated():
                yield made

    # --- writing ----------------------------------------------------------------------------

    def append(
        self,
        made: Sequence[Event],
        settled: Callable[[Sequence[int] | None], None] = lambda _offsets: None,
        members: Sequence[GroupedBatch] = (),
    ) -> DirectFuture[list[int]]:
        """Queue events and their batches: all of them are in the log, or none.

        The events are applied as soon as they are durable; `settled` is called after that, before
        any answer, with the offsets of all batches, or None.

        The future raises:
            StorageError: nothing is in the log.
        """
        partition = self._wal.partitions.get(TRANSACTIONS)
        others = [GroupedBatch(partition, *_batch(event, 0)) for event in made[1:]]
        others += members

        def settle(outcome: Outcome) -> None:
            if isinstance(outcome, StorageError):
                settled(None)
                return
            self._applied = outcome[0] + len(made)
            self.written += len(made)
            for event in made:
                self._table.apply(event)
            settled(outcome)

        # Urgent: the end of a transaction lets its readers continue.
        urgent = isinstance(made[0], Ended)
        head = _batch(made[0], len(others))
        return self._wal.queue.append(
            partition, [head], urgent=urgent, settle=settle, members=others
        )


def _batch(event: Event, followers: int) -> tuple[BatchHeader, memoryview]:
    record = Record(0, clock.time_ns() // 1_000_000, None, events.encode(event), [])
    data = build_batch([record], base_sequence=followers or -1)
    return read_header(data), memoryview(data)
