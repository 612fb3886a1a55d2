"""The allocation of producer ids.

A producer may write to several brokers through one gateway, with the id that one of the brokers
allocated. If another broker allocated the same id to another producer, a third broker would mistake
new batches for repeated ones. So each broker allocates from its own space, and no id twice.

The space is shared by all orgs. An org has its own blocks, which begin at random distances above
all others, so its ids reveal little about the number of ids of others. And the idempotent producers
of an org get at most `max.producer.ids` ids in an hour; otherwise the org could exhaust the space.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from quafka_broker.partitions.errors import OffsetGoneError
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.topics.events import producer_ids_allocated
from quafka_broker.topics.journal import RegistryJournal
from quafka_broker.topics.registry import Registry
from quafka_broker.wal.epoch_file import SKIPPED
from quafka_broker.wal.log import Log
from quafka_loop import clock

PRODUCER_ID_BLOCK = 1_000
"""The minimum number of ids that one event of the registry allocates."""
_ORG_BLOCK = 64
_MOST_SKIPPED = 7
"""The maximum number of blocks that are skipped before an org's next one."""
_MOST_PER_EVENT = PRODUCER_ID_BLOCK + (_MOST_SKIPPED + 1) * _ORG_BLOCK
"""The maximum by which one event raises the highest allocated id."""
_HOUR = 3_600.0
_SPACE_SIZE = 1 << 32


def producer_id_space(cluster_id: str) -> range:
    """The producer ids that only this cluster's broker allocates.

    The upper 31 bits are a digest of the cluster id, which is random and stays with the log.
    """
    digest = hashlib.sha256(f"producer ids of {cluster_id}".encode()).digest()
    first = (int.from_bytes(digest[:4], "big") >> 1) * _SPACE_SIZE
    return range(first, first + _SPACE_SIZE)


@dataclass(slots=True)
class _OrgIds:
    """The next ids of an org, and how many more it may have now."""

    next: int = 0
    stop: int = 0
    left: float = math.inf
    at: float = 0.0

    def take(self, limit: int, now: float) -> bool:
        """Count an id, if the org may have another one."""
        self.left = min(float(limit), self.left + (now - self.at) * limit / _HOUR)
        self.at = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class ProducerIds:
    """Allocates producer ids; blocks of them are events of the registry.

    Args:
        limit: the maximum number of ids for idempotent producers of an org in an hour.
    """

    def __init__(
        self,
        wal: Log,
        journal: RegistryJournal,
        registry: Registry,
        producers: Producers,
        limit: Callable[[int], int],
        now: Callable[[], float] | None = None,
    ) -> None:
        self._wal = wal
        self._journal = journal
        self._registry = registry
        self._producers = producers
        self._limit = limit
        self._now = now or clock.monotonic
        self._orgs: dict[int, _OrgIds] = {}
        self._space = range(0)
        self._next = 0

    def begin(self, lost_events: int) -> None:
        """Begin above every id that may be allocated: any lost event may have allocated a block.

        The registry must have been replayed, and the cluster must have an id.
        """
        space = self._space = producer_id_space(self._registry.cluster_id)
        up_to = max(space.start, self._registry.producer_ids_up_to)
        self._registry.producer_ids_up_to = up_to + lost_events * _MOST_PER_EVENT
        self._begin_block()

    def _begin_block(self) -> None:
        # Ids of the last block may have been allocated: begin above it.
        self._next = max(self._space.start, self._registry.producer_ids_up_to)
        for its in self._orgs.values():
            its.next = its.stop = 0
        self._producers.begin_ids(range(self._next, self._space.stop))
        self._producers.restored_below = self._registry.restored_ids_below
        self._producers.may_lack = self._may_lack

    def is_allocated(self, producer_id: int) -> bool:
        """Whether this broker has, or may have, allocated this id."""
        return self._space.start <= producer_id < self._registry.producer_ids_up_to

    def admit(self, org: int) -> bool:
        """Whether another idempotent producer of an org may have an id now; counts it if so.

        Transactional producers are bounded by the number of transactional ids.
        """
        return self._org(org).take(self._limit(org), self._now())

    async def allocate(self, org: int) -> int:
        """Allocate an id, which no broker ever allocates again, whatever crashes.

        Raises:
            StorageError: no new block of ids could be recorded.
        """
        its = self._org(org)

        async def allocate() -> int:
            if its.next >= its.stop:
                await self._begin_org_block(its)
            its.next += 1
            return its.next - 1

        return await self._journal.in_turn(allocate)

    def _org(self, org: int) -> _OrgIds:
        its = self._orgs.get(org)
        if its is None:
            its = self._orgs[org] = _OrgIds()
        return its

    async def _begin_org_block(self, its: _OrgIds) -> None:
        first = self._next + secrets.randbelow(_MOST_SKIPPED + 1) * _ORG_BLOCK
        stop = first + _ORG_BLOCK
        if stop > self._registry.producer_ids_up_to:
            await self._journal.record(producer_ids_allocated(stop + PRODUCER_ID_BLOCK))
        its.next, its.stop = first, stop
        self._next = stop

    async def skip(self, count: int) -> None:
        """Never allocate the next `count` ids, since this log is a copy. Durable on return.

        Raises:
            StorageError: they may still be allocated.
        """

        async def skip() -> None:
            up_to = min(self._next + count, self._space.stop)
            await self._journal.record(producer_ids_allocated(up_to, restored=True))
            self._begin_block()

        await self._journal.in_turn(skip)

    def _may_lack(self, id_: PartitionId, offset: int) -> bool:
        """Whether later records may be missing, since the log is a copy from before them."""
        try:
            global_id = self._wal.partitions.get(id_).global_id_at(offset)
        except (OffsetGoneError, IndexError):
            return False
        return global_id < self._wal.epochs.skipped_before(SKIPPED)
