"""A random workload on a broker's state, and the history of its requests and answers.

Each producer sends numbered values to every partition of every topic, several batches in flight,
as a Kafka client does: refused batches are repeated, unchanged, in order. Meanwhile records are
deleted, topics are created and deleted (and created again), segments are rewritten, users, rules,
quotas, an org and a group's configs change, and members of a group come and go. The history has the
number of disk operations at each answer: a later power cut must not take the answer back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from quafka_broker.ops import produce
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import Partition
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from tests.crash.group_members import Members
from tests.crash.security_records import Settings
from tests.unit.broker.tools import ORG, context

TOPICS = {
    "t0": {"retention.ms": "-1"},
    "t1": {"retention.ms": "-1", "retention.bytes": "1500"},
}
PARTITIONS = 2
IDEMPOTENT_PRODUCERS = 2
SIZES = (0, 10, 60, 300)
NO_PRODUCER = -1
_IN_FLIGHT = 3

T = TypeVar("T")


class Recorded(Protocol):
    """A disk, or a store, that records its operations."""

    @property
    def operations(self) -> Sequence[object]: ...


class TopicPartition(NamedTuple):
    """One partition of one incarnation of a topic."""

    uuid: bytes
    partition: int


@dataclass
class Batch:
    """One batch of a producer, and its answer."""

    producer: int
    sequence: int
    values: list[bytes]
    offset: int | None = None
    """Its offset; None before the answer."""
    answered: int = 0
    """The number of disk operations at the time of the answer."""
    refusals: list[tuple[int, int]] = field(default_factory=list)
    """The range of operations in which it was reported as not stored."""

    def encode(self) -> bytes:
        """The bytes, the same for each repeat."""
        epoch, sequence = (0, self.sequence) if self.producer != NO_PRODUCER else (-1, -1)
        return bytes(
            build_batch(
                [Record(0, 1_000, None, value, []) for value in self.values],
                producer_id=self.producer,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )


class Seen(NamedTuple):
    """A high watermark that a consumer saw after a number of operations."""

    operations: int
    partition: TopicPartition
    high_watermark: int


@dataclass
class Deletion:
    """A deletion below an offset, and the operations at its request and its answer."""

    partition: TopicPartition
    offset: int
    asked: int
    answered: int | None = None


@dataclass
class Life:
    """A topic, and the operations at its creation, its deletion's request and answer."""

    topic: Topic
    created: int
    delete_asked: int | None = None
    deleted: int | None = None

    def must_exist(self, operations: int) -> bool:
        """Its creation has been answered, and its deletion not requested."""
        doomed = self.delete_asked is not None and self.delete_asked <= operations
        return self.created <= operations and not doomed

    def must_be_gone(self, operations: int) -> bool:
        """Its deletion has been answered."""
        return self.deleted is not None and self.deleted <= operations


@dataclass
class History:
    """The requests and the answers."""

    batches: dict[TopicPartition, list[list[Batch]]] = field(default_factory=dict)
    """By partition, then by producer, in the order in which they were sent; the first producer is
    not idempotent."""
    seen: list[Seen] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    lives: dict[bytes, Life] = field(default_factory=dict)
    producer_ids: list[tuple[int, int]] = field(default_factory=list)
    """A producer id, and the number of operations when it was assigned."""
    settings: Settings = field(default_factory=Settings)
    members: Members = field(default_factory=Members)


_ANYTHING = 1 << 62  # records that arrive during the deletion may be deleted, too


class Workload:
    """One run, drawn from a random source, on a disk that records."""

    def __init__(self, rng: random.Random, disk: Recorded) -> None:
        self._rng = rng
        self._disk = disk
        self._producers = [NO_PRODUCER]
        self.history = History()

    async def run(self, state: BrokerState, turns: int) -> None:
        """Do a number of random steps, several at a time. Ends early if the log has failed."""
        await self._unless_over(state, self._begin(state))
        for _ in range(turns):
            if state.log.failure is not None:
                return
            jobs = [self._send_some(state, index) for index in range(len(self._producers))]
            for job, chance in (
                (self._replace_topic, 0.15),
                (self._delete_some, 0.3),
                (self._sweep, 0.2),
                (self._rewrite, 0.3),
                (self._change_settings, 0.4),
                (self._beat, 0.5),
            ):
                if self._rng.random() < chance:
                    jobs.append(job(state))
            await self._unless_over(state, *jobs)

    async def _unless_over(self, state: BrokerState, *jobs: Coroutine[Any, Any, None]) -> None:
        """Run the steps to their ends. They may fail if the log has failed for good."""
        for error in await asyncio.gather(*jobs, return_exceptions=True):
            over = isinstance(error, StorageError) and state.log.failure is not None
            if error is not None and not over:
                raise error

    @property
    def _now(self) -> int:
        return len(self._disk.operations)

    @property
    def _living(self) -> list[Life]:
        return [life for life in self.history.lives.values() if life.delete_asked is None]

    async def _begin(self, state: BrokerState) -> None:
        for _ in range(IDEMPOTENT_PRODUCERS):
            self._producers.append(
                await _until_taken(state, lambda: state.producer_ids.allocate(ORG))
            )
            self.history.producer_ids.append((self._now, self._producers[-1]))
        for name in TOPICS:
            await self._create(state, name)

    async def _create(self, state: BrokerState, name: str) -> None:
        topic, _ = await _until_taken(
            state, lambda: state.topics.create(ORG, name, PARTITIONS, TOPICS[name])
        )
        self.history.lives[topic.uuid] = Life(topic, self._now)
        for number in range(topic.partitions):
            partition = TopicPartition(topic.uuid, number)
            self.history.batches[partition] = [[] for _ in self._producers]

    async def _replace_topic(self, state: BrokerState) -> None:
        life = self._rng.choice(self._living)
        life.delete_asked = self._now
        await _until_taken(state, lambda: state.topics.delete(life.topic))
        life.deleted = self._now
        await self._create(state, life.topic.name)

    async def _delete_some(self, state: BrokerState) -> None:
        """Delete the first records of a partition, up to a random one."""
        topic = self._rng.choice(self._living).topic
        number = self._rng.randrange(topic.partitions)
        partition = state.log.partitions.get(topic.partition_id(number))
        offset = self._rng.randint(partition.log_start, partition.high_watermark)
        deletion = Deletion(TopicPartition(topic.uuid, number), offset, self._now)
        self.history.deletions.append(deletion)
        await _until_taken(state, lambda: state.topics.delete_records({topic: {number: offset}}))
        if not self._doomed(topic):
            deletion.answered = self._now

    async def _change_settings(self, state: BrokerState) -> None:
        for _ in range(self._rng.randint(1, 3)):
            await self.history.settings.change_one(state, self._rng, lambda: self._now)

    async def _beat(self, state: BrokerState) -> None:
        for _ in range(self._rng.randint(1, 4)):
            await self.history.members.beat_one(state, self._rng, lambda: self._now, TOPICS)

    async def _rewrite(self, state: BrokerState) -> None:
        """Run the rewrite task once. Only one runs at a time."""
        work = state.log.rewrite_task(
            RewritePolicy(bytes_per_second=1 << 40), lambda: state.journal.deletions
        )
        await work.run_once()
        await work.close()

    async def _sweep(self, state: BrokerState) -> None:
        """Run retention: it may delete any record until the result is known."""

        async def attempt() -> None:
            # All that a sweep finds, also topics whose deletion has been requested, or whose
            # creation has not been answered.
            mine: dict[Partition, Deletion] = {}
            for topic in state.registry.every_topic():
                for number in range(topic.partitions):
                    partition = state.log.partitions.get(topic.partition_id(number))
                    name = TopicPartition(topic.uuid, number)
                    mine[partition] = Deletion(name, _ANYTHING, self._now)
            self.history.deletions += mine.values()
            try:
                await state.retention().sweep()
            except StorageError:
                # The refused write may have reached the disk, and the next attempt may delete less.
                for partition, deletion in mine.items():
                    deletion.offset = partition.high_watermark
                raise
            for partition, deletion in mine.items():
                deletion.offset, deletion.answered = partition.log_start, self._now

        await _until_taken(state, attempt)

    async def _send_some(self, state: BrokerState, index: int) -> None:
        """A few batches of one producer, all in flight at once, to one partition."""
        if not self._living:
            return
        topic = self._rng.choice(self._living).topic
        partition = TopicPartition(topic.uuid, self._rng.randrange(topic.partitions))
        mine = self.history.batches[partition][index]
        begun: list[Batch] = []
        for _ in range(self._rng.randint(1, _IN_FLIGHT)):
            begun.append(self._next_batch(partition, index, mine))
            mine.append(begun[-1])
        while begun and state.log.failure is None and not self._doomed(topic):
            await asyncio.gather(*[self._send(state, topic, partition, b) for b in begun])
            # A batch of a non-idempotent producer is not repeated: it may have been stored.
            begun = [b for b in begun if b.offset is None and b.producer != NO_PRODUCER]

    def _doomed(self, topic: Topic) -> bool:
        return self.history.lives[topic.uuid].delete_asked is not None

    def _next_batch(self, partition: TopicPartition, index: int, mine: list[Batch]) -> Batch:
        sequence = mine[-1].sequence + len(mine[-1].values) if mine else 0
        name = b"%s/%d/%d" % (partition.uuid.hex().encode(), partition.partition, index)
        count = self._rng.choice((1, 1, 1, 2, 5))
        values = [
            b"%s/%d/" % (name, sequence + n) + self._rng.randbytes(self._rng.choice(SIZES))
            for n in range(count)
        ]
        return Batch(self._producers[index], sequence, values)

    async def _send(
        self, state: BrokerState, topic: Topic, partition: TopicPartition, batch: Batch
    ) -> None:
        if batch.refusals:
            batch.refusals[-1] = (batch.refusals[-1][0], self._now)
        answer = await send(state, partition, batch)
        if answer.error_code == ErrorCode.NONE:
            batch.offset, batch.answered = answer.base_offset, self._now
            watermark = state.log.partitions.get(
                topic.partition_id(partition.partition)
            ).high_watermark
            self.history.seen.append(Seen(self._now, partition, watermark))
        elif answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            assert state.log.failure is not None
        else:
            batch.refusals.append((self._now, 1 << 62))
            assert answer.error_code in (
                ErrorCode.KAFKA_STORAGE_ERROR,
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,  # after a refused batch
                ErrorCode.UNKNOWN_TOPIC_ID,  # deleted meanwhile
            ), ErrorCode(answer.error_code).name


async def send(state: BrokerState, partition: TopicPartition, batch: Batch) -> ProduceOpResp:
    """Send a batch as a gateway would."""
    op = ProduceOp("", partition.partition, batch.encode(), partition.uuid)
    return (await produce.handle(state, context(), ProduceOps([op]))).partitions[0]


async def _until_taken(state: BrokerState, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Repeat a change while the disk is full.

    Raises:
        StorageError: the log has failed.
    """
    while True:
        try:
            return await change()
        except StorageError:
            if state.log.failure is not None:
                raise
