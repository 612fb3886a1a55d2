"""Checks a recovered broker against the history of the one whose power was cut.

What was acknowledged is there, once, in order, at its offset; nothing is made up; no high watermark
is below what a consumer saw; topics are as answered; idempotent producers can go on, and what they
send again is not stored twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from quafka_broker.ops import fetch
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops import FetchOp, FetchOps
from quafka_proto.errors import ErrorCode
from quafka_proto.records import iter_records
from tests.crash.workload import NO_PRODUCER, TOPICS, Batch, History, Partition, send
from tests.unit.broker.tools import EVERYTHING, ORG, context

_REMEMBERED = 5  # batches of a producer that can be told from new ones (Kafka's limit)


@dataclass(frozen=True)
class Found:
    """One partition as a consumer reads it."""

    log_start: int
    high_watermark: int
    values: list[bytes]

    def at(self, batch: Batch) -> int | None:
        """The offset of a batch; None where it is not."""
        for place, value in enumerate(self.values):
            if value == batch.values[0]:
                assert self.values[place : place + len(batch.values)] == batch.values
                return self.log_start + place
        return None


async def read(state: BrokerState, partition: Partition) -> Found:
    """Everything in a partition; offsets are checked on the way."""
    op = FetchOps([FetchOp("", partition.partition, 0, EVERYTHING, topic_id=partition.uuid)])
    answer = (await fetch.handle(state, context(), op)).partitions[0]
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
    records = [record for batch in answer.records for record in iter_records(batch)]
    start = answer.log_start_offset
    assert [r.offset for r in records] == list(range(start, answer.high_watermark))
    return Found(start, answer.high_watermark, [record.value or b"" for record in records])


async def verify(state: BrokerState, history: History, operations: int) -> None:
    """A cut after so many operations: all that was answered by then holds."""
    _check_topics(state, history, operations)
    for partition, producers in history.batches.items():
        if state.registry.by_id(ORG, partition.uuid) is None:
            continue
        found = await read(state, partition)
        for number, batches in enumerate(producers):
            _check_batches(found, batches, operations)
            if number:
                _check_prefix(found, batches)
        sent = {value for batches in producers for batch in batches for value in batch.values}
        assert len(set(found.values)) == len(found.values), "a record is there twice"
        assert sent.issuperset(found.values), "a record was made up"
        await _go_on(state, partition, found, producers)
    handed_out = {number for when, number in history.producer_ids if when <= operations}
    assert await state.next_producer_id() not in handed_out


def _check_topics(state: BrokerState, history: History, operations: int) -> None:
    existing = {topic.uuid: topic for topic in state.registry.topics(ORG)}
    for topic in existing.values():
        # One that is not in the history was asked for, refused on a full disk, and asked for again:
        # like every refused write it may have reached the disk all the same.
        assert topic.uuid in history.lives or topic.name in TOPICS, "a topic was made up"
    for uuid, life in history.lives.items():
        if life.must_exist(operations):
            assert existing.get(uuid) == life.topic
        if life.must_be_gone(operations):
            assert uuid not in existing
    for seen in history.seen:
        shown = existing.get(seen.partition.uuid)
        if shown is not None and seen.operations <= operations:
            virtual = state.log.topic(shown.virtual(seen.partition.partition))
            assert virtual.high_watermark >= seen.high_watermark


def _check_batches(found: Found, batches: list[Batch], operations: int) -> None:
    """Answered batches are at their offsets, and no two batches have changed places."""
    last = -1
    for batch in batches:
        offset = found.at(batch)
        if batch.offset is not None and batch.answered <= operations:
            assert offset == batch.offset, f"acknowledged at {batch.offset}, found at {offset}"
        if offset is not None:
            assert offset > last
            last = offset


def _check_prefix(found: Found, batches: list[Batch]) -> None:
    """Of an idempotent producer nothing is missing before something that is there."""
    there = [found.at(batch) is not None for batch in batches]
    assert there == sorted(there, reverse=True)


async def _go_on(
    state: BrokerState, partition: Partition, found: Found, producers: list[list[Batch]]
) -> None:
    """Every idempotent producer sends its last batches again, then the ones that did not arrive."""
    expected = list(found.values)
    for batches in producers[1:]:
        arrived = [batch for batch in batches if found.at(batch) is not None]
        for batch in arrived[-_REMEMBERED:]:
            answer = await send(state, partition, batch)
            assert (answer.error_code, answer.base_offset) == (0, found.at(batch))
        for batch in batches[len(arrived) :]:
            answer = await send(state, partition, batch)
            assert (answer.error_code, answer.base_offset) == (0, found.log_start + len(expected))
            expected += batch.values
        if batches:
            gap = Batch(batches[-1].producer, batches[-1].sequence + 100, [b"gap"])
            refusal = await send(state, partition, gap)
            assert refusal.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    extra = await send(state, partition, Batch(NO_PRODUCER, 0, [b"extra"]))
    assert (extra.error_code, extra.base_offset) == (0, found.log_start + len(expected))
    assert (await read(state, partition)).values == [*expected, b"extra"]
