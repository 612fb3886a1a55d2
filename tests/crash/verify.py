"""Checks a recovered broker against the history of the one whose power was cut.

Every acknowledged record is there, once, in order, at its offset, unless it was deleted. Deleted
records do not come back, refused records are not there, and no record is invented. No high
watermark is below one that a consumer saw. Topics, users, rules, quotas, orgs and members of groups
match the answers.
Idempotent producers can go on, and their repeats are not stored twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from quafka_broker.ops import fetch
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.records import FetchOp, FetchOps
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import iter_records
from tests.crash.workload import NO_PRODUCER, TOPICS, Batch, History, TopicPartition, send
from tests.unit.broker.tools import EVERYTHING, ORG, context

_GO_ON_IN_EACH = 3  # one partition in three, others after the next cut: writing takes longest
_REMEMBERED = 5  # batches of a producer that are recognised as repeats (Kafka's limit)


@dataclass(frozen=True)
class Found:
    """The content of one partition, as a consumer reads it."""

    log_start: int
    high_watermark: int
    values: list[bytes]

    def at(self, batch: Batch) -> int | None:
        """The offset of a batch; None if it is not there. Its first records may be deleted."""
        for place, value in enumerate(self.values):
            if value in batch.values:
                skipped = batch.values.index(value)
                assert not place or not skipped, "only the first batch has lost its beginning"
                rest = batch.values[skipped:]
                assert self.values[place : place + len(rest)] == rest
                return self.log_start + place - skipped
        return None

    def has_lost(self, batch: Batch) -> bool:
        """Whether the batch was answered and is below the log start."""
        end = None if batch.offset is None else batch.offset + len(batch.values)
        return end is not None and end <= self.log_start


async def read(state: BrokerState, partition: TopicPartition) -> Found:
    """Everything in a partition; offsets are checked on the way."""
    topic = state.registry.by_id(ORG, partition.uuid)
    assert topic is not None
    start = state.log.partitions.get(topic.partition_id(partition.partition)).log_start
    op = FetchOps([FetchOp("", partition.partition, start, EVERYTHING, topic_id=partition.uuid)])
    answer = (await fetch.handle(state, context(), op)).partitions[0]
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
    assert answer.log_start_offset == start
    every = [record for batch in answer.records for record in iter_records(batch)]
    records = [record for record in every if record.offset >= start]
    assert [r.offset for r in records] == list(range(start, answer.high_watermark))
    return Found(start, answer.high_watermark, [record.value or b"" for record in records])


async def verify(state: BrokerState, history: History, operations: int) -> None:
    """Check a cut after a number of operations: all answers before it hold."""
    _check_topics(state, history, operations)
    history.settings.verify(state, operations)
    history.members.verify(state, operations)
    for place, (partition, producers) in enumerate(history.batches.items()):
        if state.registry.by_id(ORG, partition.uuid) is None:
            continue
        found = await read(state, partition)
        _check_log_start(found, partition, history, operations)
        for number, batches in enumerate(producers):
            _check_batches(found, batches, operations)
            if number:
                _check_prefix(found, batches)
        sent = {value for batches in producers for batch in batches for value in batch.values}
        assert len(set(found.values)) == len(found.values), "a record is there twice"
        assert sent.issuperset(found.values), "a record was made up"
        if (place + operations) % _GO_ON_IN_EACH == 0:
            await _go_on(state, partition, found, producers, operations)
    handed_out = {number for when, number in history.producer_ids if when <= operations}
    assert await state.producer_ids.allocate(1) not in handed_out


def _check_topics(state: BrokerState, history: History, operations: int) -> None:
    existing = {topic.uuid: topic for topic in state.registry.topics(ORG)}
    for topic in existing.values():
        # A topic that is not in the history was refused on a full disk, and requested again. Like
        # every refused write, the first request may still have reached the disk.
        assert topic.uuid in history.lives or topic.name in TOPICS, "a topic was made up"
    for uuid, life in history.lives.items():
        if life.must_exist(operations):
            assert existing.get(uuid) == life.topic
        if life.must_be_gone(operations):
            assert uuid not in existing
    for seen in history.seen:
        shown = existing.get(seen.partition.uuid)
        if shown is not None and seen.operations <= operations:
            partition = state.log.partitions.get(shown.partition_id(seen.partition.partition))
            assert partition.high_watermark >= seen.high_watermark


def _check_log_start(
    found: Found, partition: TopicPartition, history: History, operations: int
) -> None:
    mine = [deletion for deletion in history.deletions if deletion.partition == partition]
    done = [d.offset for d in mine if d.answered is not None and d.answered <= operations]
    asked = [d.offset for d in mine if d.asked <= operations]
    assert max(done, default=0) <= found.log_start <= max(asked, default=0)


def _check_batches(found: Found, batches: list[Batch], operations: int) -> None:
    """Answered batches are at their offsets, refused ones nowhere, and the order is right."""
    last = -1
    for batch in batches:
        offset = found.at(batch)
        answered = batch.offset is not None and batch.answered <= operations
        if answered and not found.has_lost(batch):
            assert offset == batch.offset, f"acknowledged at {batch.offset}, found at {offset}"
        if offset is not None:
            assert not any(since <= operations < until for since, until in batch.refusals)
            assert offset > last
            last = offset


def _check_prefix(found: Found, batches: list[Batch]) -> None:
    """No batch of an idempotent producer is missing before a stored one."""
    there = [found.at(batch) is not None for batch in batches]
    while found.log_start and there and not there[0]:
        del there[0]  # deleted; or the first of those that never arrived
    assert there == sorted(there, reverse=True)


async def _go_on(
    state: BrokerState,
    partition: TopicPartition,
    found: Found,
    producers: list[list[Batch]],
    operations: int,
) -> None:
    """Every idempotent producer repeats its last batches, then sends the missing ones."""
    expected = list(found.values)
    for batches in producers[1:]:
        arrived = [batch for batch in batches if found.at(batch) is not None]
        for batch in arrived[-_REMEMBERED:]:
            answer = await send(state, partition, batch)
            assert (answer.error_code, answer.base_offset) == (0, found.at(batch))
        for batch in batches[_stored(found, batches, operations) :]:
            answer = await send(state, partition, batch)
            assert answer.error_code == 0
            if answer.base_offset + len(batch.values) <= found.log_start:
                continue  # it had arrived, and was deleted
            assert answer.base_offset == found.log_start + len(expected)
            expected += batch.values
        if batches:
            gap = Batch(batches[-1].producer, batches[-1].sequence + 100, [b"gap"])
            refusal = await send(state, partition, gap)
            assert refusal.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    extra = await send(state, partition, Batch(NO_PRODUCER, 0, [b"extra"]))
    assert (extra.error_code, extra.base_offset) == (0, found.log_start + len(expected))
    assert (await read(state, partition)).values == [*expected, b"extra"]


def _stored(found: Found, batches: list[Batch], operations: int) -> int:
    """The number of a producer's batches that are known to have arrived."""
    known = [
        number
        for number, batch in enumerate(batches, 1)
        if found.at(batch) is not None
        or (batch.offset is not None and batch.answered <= operations)
    ]
    return max(known, default=0)
