"""The allocation of producer ids.

A producer may write to several brokers through one gateway, with the id that one of the brokers
gave. If another broker gave the same id to another producer, a third broker would take new batches
for repeated ones. So each broker allocates from a space of its own, and no id twice.
"""

from __future__ import annotations

import hashlib

from quafka_broker.partitions.errors import OffsetGoneError
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.topics.events import producer_ids_allocated
from quafka_broker.topics.journal import RegistryJournal
from quafka_broker.topics.registry import Registry
from quafka_broker.wal.epoch_file import SKIPPED
from quafka_broker.wal.log import Log

PRODUCER_ID_BLOCK = 1_000
"""Ids that one event of the registry allocates."""
_SPACE_SIZE = 1 << 32


def producer_id_space(cluster_id: str) -> range:
    """The producer ids that only this cluster's broker allocates.

    The upper 31 bits are a digest of the cluster id, which is random and stays with the log.
    """
    digest = hashlib.sha256(f"producer ids of {cluster_id}".encode()).digest()
    first = (int.from_bytes(digest[:4], "big") >> 1) * _SPACE_SIZE
    return range(first, first + _SPACE_SIZE)


class ProducerIds:
    """Allocates producer ids; blocks of them are events of the registry."""

    def __init__(
        self, wal: Log, journal: RegistryJournal, registry: Registry, producers: Producers
    ) -> None:
        self._wal = wal
        self._journal = journal
        self._registry = registry
        self._producers = producers
        self._space = range(0)
        self._next = 0

    def begin(self, lost_events: int) -> None:
        """Begin above every id that may be allocated: each lost event may have allocated a block.

        The registry must have been replayed, and the cluster have an id.
        """
        space = self._space = producer_id_space(self._registry.cluster_id)
        up_to = max(space.start, self._registry.producer_ids_up_to)
        self._registry.producer_ids_up_to = up_to + lost_events * PRODUCER_ID_BLOCK
        self._begin_block()

    def _begin_block(self) -> None:
        # Ids of the last block may have been allocated: begin above it.
        self._next = max(self._space.start, self._registry.producer_ids_up_to)
        self._producers.begin_ids(range(self._next, self._space.stop))
        self._producers.restored_below = self._registry.restored_ids_below
        self._producers.may_lack = self._may_lack

    def is_allocated(self, producer_id: int) -> bool:
        """Whether this broker has, or may have, allocated this id."""
        return self._space.start <= producer_id < self._registry.producer_ids_up_to

    async def allocate(self) -> int:
        """An id that is never allocated again, by this broker or another, whatever crashes.

        Raises:
            StorageError: no new block of ids could be recorded.
        """

        async def allocate() -> int:
            if self._next >= self._registry.producer_ids_up_to:
                up_to = self._next + PRODUCER_ID_BLOCK
                await self._journal.record(producer_ids_allocated(up_to))
            self._next += 1
            return self._next - 1

        return await self._journal.in_turn(allocate)

    async def skip(self, count: int) -> None:
        """Never allocate the next `count` ids: this log is a copy. Durable on return.

        Raises:
            StorageError: they may be allocated.
        """

        async def skip() -> None:
            up_to = min(self._next + count, self._space.stop)
            await self._journal.record(producer_ids_allocated(up_to, restored=True))
            self._begin_block()

        await self._journal.in_turn(skip)

    def _may_lack(self, id_: PartitionId, offset: int) -> bool:
        """Whether records after this one may be lost: the log is a copy from before them."""
        try:
            global_id = self._wal.partition(id_).global_id_at(offset)
        except (OffsetGoneError, IndexError):
            return False
        return global_id < self._wal.epochs.skipped_before(SKIPPED)
