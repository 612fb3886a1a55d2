"""What all op handlers of one broker share."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

from quafka_broker import topics
from quafka_broker.config import BrokerConfig
from quafka_broker.producers import Producers
from quafka_broker.purgatory import Purgatory
from quafka_broker.topics import Event, Registry, Topic
from quafka_broker.wal.log import Log
from quafka_proto.records import Record, build_batch, iter_records, split_batches

_READ_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class BrokerState:
    """The log and everything that is made from it."""

    config: BrokerConfig
    log: Log
    registry: Registry = field(default_factory=Registry)
    producers: Producers = field(default_factory=Producers)
    purgatory: Purgatory = field(default_factory=Purgatory)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the registry changes: of two creations of one name, one wins."""
    _producer_ids: itertools.count[int] = field(default_factory=itertools.count)

    async def replay_registry(self) -> None:
        """Rebuild the registry from the log; name the cluster if it is new.

        Raises:
            StorageError: the log cannot be read, or written.
        """
        virtual = self.log.topic(topics.REGISTRY)
        offset = virtual.log_start
        while offset < virtual.high_watermark:
            for batch in await self.log.read(virtual, offset, _READ_BYTES, at_least_one=True):
                for record in iter_records(batch):
                    self.registry.apply(topics.decode_event(record.value or b""))
                    offset = record.offset + 1
        live = {topics.REGISTRY} | {
            topic.virtual(partition)
            for topic in self.registry.every_topic()
            for partition in range(topic.partitions)
        }
        self.log.keep(live)
        self.producers.keep(live)
        # Ids of the last block may have been handed out: begin behind it.
        self._producer_ids = itertools.count(self.registry.producer_ids_up_to)
        if not self.registry.cluster_id:
            await self.record(topics.new_cluster())

    async def record(self, event: Event) -> None:
        """Make a change to the registry durable, then real.

        Raises:
            StorageError: the log did not take it; nothing has changed.
        """
        now = event.get("created_ms", 0)
        batch = build_batch([Record(0, now, None, topics.encode_event(event), [])])
        await asyncio.shield(self.log.append(self.log.topic(topics.REGISTRY), split_batches(batch)))
        self.registry.apply(event)

    async def create_topic(self, org: int, name: str, partitions: int) -> tuple[Topic, bool]:
        """The topic of that name, and whether this call created it. Durable on return.

        Raises:
            StorageError: nothing was created.
        """
        async with self.changing:
            found = self.registry.by_name(org, name)
            if found is not None:
                return found, False
            topic = self.registry.plan_topic(org, name, partitions)
            await self.record(topics.created(topic))
            return topic, True

    async def delete_topic(self, topic: Topic) -> None:
        """Delete a topic. Durable on return.

        Raises:
            StorageError: it is still there.
        """
        async with self.changing:
            if self.registry.by_id(topic.org, topic.uuid) is None:
                return
            await self.record(topics.deleted(topic))
        gone = [topic.virtual(partition) for partition in range(topic.partitions)]
        for virtual in gone:
            self.log.forget(virtual)
        self.producers.forget(set(gone))
        self.purgatory.wake(gone)

    async def next_producer_id(self) -> int:
        """An id that is never handed out again, whatever crashes.

        Raises:
            StorageError: no new block of ids could be recorded.
        """
        async with self.changing:
            producer_id = next(self._producer_ids)
            if producer_id >= self.registry.producer_ids_up_to:
                await self.record(
                    {"event": "producer_ids", "up_to": producer_id + topics.PRODUCER_ID_BLOCK}
                )
            return producer_id

    def find(self, org: int, name: str, uuid: bytes) -> Topic | None:
        """The topic addressed by name or, where the name is empty, by id."""
        if uuid and not name:
            return self.registry.by_id(org, uuid)
        return self.registry.by_name(org, name)
