"""What all op handlers of one broker share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from quafka_broker import topics
from quafka_broker.config import BrokerConfig
from quafka_broker.producers import Producers
from quafka_broker.purgatory import Purgatory
from quafka_broker.topics import Event, Registry, Topic
from quafka_broker.wal.log import Log
from quafka_proto.records import Record, build_batch, iter_records, read_header, split_batches

_READ_BYTES = 1 << 20

T = TypeVar("T")


class BadRegistryError(Exception):
    """The registry's events are not what this version writes."""


@dataclass(slots=True, eq=False)
class BrokerState:
    """The log and everything that is made from it."""

    config: BrokerConfig
    log: Log
    registry: Registry = field(default_factory=Registry)
    producers: Producers = field(default_factory=Producers)
    purgatory: Purgatory = field(default_factory=Purgatory)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _next_producer_id: int = 0

    async def replay_registry(self) -> None:
        """Rebuild the registry from the log; name the cluster if it is new.

        Raises:
            StorageError: the log cannot be read, or written.
            BadRegistryError: an event cannot be understood.
        """
        virtual = self.log.topic(topics.REGISTRY)
        offset = virtual.log_start
        while offset < virtual.high_watermark:
            for batch in await self.log.read(virtual, offset, _READ_BYTES, at_least_one=True):
                offset = self._replay(batch)
        live = {topics.REGISTRY} | {
            topic.virtual(partition)
            for topic in self.registry.every_topic()
            for partition in range(topic.partitions)
        }
        self.log.keep(live)
        self.producers.keep(live)
        # Ids of the last block may have been handed out: begin behind it.
        self._next_producer_id = self.registry.producer_ids_up_to
        # Who wrote before this start may have lost his batches to retention.
        self.producers.forgotten_below = self.registry.producer_ids_up_to
        if not self.registry.cluster_id:
            await self._record(topics.new_cluster())

    def _replay(self, batch: memoryview) -> int:
        """Apply a batch of events; returns the offset behind it."""
        offset = read_header(batch).base_offset
        try:
            for record in iter_records(batch):
                self.registry.apply(topics.decode_event(record.value or b""))
                offset += 1
        except (ValueError, KeyError, TypeError) as e:
            raise BadRegistryError(f"event {offset} of the topic registry is bad: {e!r}") from e
        return offset

    async def _record(self, event: Event) -> None:
        """Make a change to the registry durable, then real. Must not be cancelled in between.

        Raises:
            StorageError: the log did not take it; nothing has changed.
        """
        now = event.get("created_ms", 0)
        batch = build_batch([Record(0, now, None, topics.encode_event(event), [])])
        await self.log.append(self.log.topic(topics.REGISTRY), split_batches(batch))
        self.registry.apply(event)

    async def create_topic(self, org: int, name: str, partitions: int) -> tuple[Topic, bool]:
        """The topic of that name, and whether this call created it. Durable on return.

        Raises:
            StorageError: nothing was created.
        """

        async def create() -> tuple[Topic, bool]:
            found = self.registry.by_name(org, name)
            if found is not None:
                return found, False
            topic = self.registry.plan_topic(org, name, partitions)
            await self._record(topics.created(topic))
            return topic, True

        return await self._change(create)

    async def delete_topic(self, topic: Topic) -> bool:
        """Delete a topic; False where another call has done so already. Durable on return.

        Raises:
            StorageError: it is still there.
        """

        async def delete() -> bool:
            if self.registry.by_id(topic.org, topic.uuid) is None:
                return False
            await self._record(topics.deleted(topic))
            gone = [topic.virtual(partition) for partition in range(topic.partitions)]
            for virtual in gone:
                self.log.forget(virtual)
            self.producers.forget(set(gone))
            self.purgatory.wake(gone)
            return True

        return await self._change(delete)

    async def next_producer_id(self) -> int:
        """An id that is never handed out again, whatever crashes.

        Raises:
            StorageError: no new block of ids could be recorded.
        """

        async def take() -> int:
            if self._next_producer_id >= self.registry.producer_ids_up_to:
                up_to = self._next_producer_id + topics.PRODUCER_ID_BLOCK
                await self._record({"event": "producer_ids", "up_to": up_to})
            self._next_producer_id += 1
            return self._next_producer_id - 1

        return await self._change(take)

    async def _change(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Change the registry, one at a time: of two creations of one name, one wins.

        It runs in a task of its own, to its end: a caller that goes away half-way must not leave
        the registry other than the log has it.
        """

        async def in_turn() -> T:
            async with self._changing:
                return await change()

        task = asyncio.create_task(in_turn())
        task.add_done_callback(_seen)
        return await asyncio.shield(task)

    def find(self, org: int, name: str, uuid: bytes) -> Topic | None:
        """The topic addressed by name or, where the name is empty, by id."""
        if uuid and not name:
            return self.registry.by_id(org, uuid)
        return self.registry.by_name(org, name)


def _seen(task: asyncio.Task[Any]) -> None:
    """A failure that nobody waits for any more is not worth a warning: the caller is gone."""
    if not task.cancelled():
        task.exception()
