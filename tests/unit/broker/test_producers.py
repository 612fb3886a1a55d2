"""Idempotent producers: repeats, gaps, and the next batch."""

from __future__ import annotations

import asyncio

import pytest

from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.partitions.outcome import Settle
from quafka_broker.partitions.producer_state import Batch, SequenceError
from quafka_broker.partitions.producers import Producers
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import IndexRow
from quafka_proto.records import BatchHeader, read_header
from tests.unit.broker.tools import batch_of, topic_id

TOPIC = topic_id()
PRODUCER = 7


def header(sequence: int, count: int = 1, epoch: int = 0) -> BatchHeader:
    return read_header(batch_of(*[b"x"] * count, producer=(PRODUCER, epoch, sequence)))


def row(sequence: int, offset: int, count: int = 1, generation: int = 0) -> IndexRow:
    return IndexRow(
        offset, offset, 0, TOPIC.topic_hash, 0, PRODUCER, sequence, TOPIC.org_id,
        TOPIC.partition, generation, count, 100, 0,
    )  # fmt: skip


def begin(producers: Producers, sequence: int, count: int = 1, epoch: int = 0) -> Settle:
    return producers.begin_append(TOPIC, header(sequence, count, epoch))


def fail(settle: Settle) -> None:
    settle(StorageError("full"))


def refused(producers: Producers, sequence: int, epoch: int = 0) -> ErrorCode:
    with pytest.raises(SequenceError) as caught:
        producers.duplicate_of(TOPIC, header(sequence, epoch=epoch))
    return caught.value.code


def repeated(producers: Producers, sequence: int, count: int = 1) -> Batch:
    found = producers.duplicate_of(TOPIC, header(sequence, count))
    assert found is not None
    return found


async def test_a_repeat_has_the_offset_of_the_first_copy() -> None:
    producers = Producers()
    settle = begin(producers, 0, count=3)
    repeats = [asyncio.create_task(repeated(producers, 0, 3).stored()) for _ in range(3)]
    await asyncio.sleep(0)
    repeats[0].cancel()
    settle([40])
    assert repeated(producers, 0, 3).offset == 40
    assert await asyncio.gather(*repeats[1:]) == [40, 40]
    assert await repeated(producers, 0, 3).stored() == 40
    assert producers.duplicate_of(TOPIC, header(3)) is None


async def test_gaps_and_half_repeats_are_out_of_order() -> None:
    producers = Producers()
    producers.restore_row(row(0, 0, count=3))
    assert refused(producers, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(producers, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(producers, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "another count"


async def test_the_last_five_batches_are_remembered() -> None:
    producers = Producers()
    for n in range(6):
        producers.restore_row(row(n, n))
    assert refused(producers, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [repeated(producers, n).offset for n in range(1, 6)] == [1, 2, 3, 4, 5]


async def test_sequences_wrap() -> None:
    producers = Producers()
    producers.restore_row(row(2**31 - 2, 0, count=4))
    assert repeated(producers, 2**31 - 2, 4).offset == 0
    assert producers.duplicate_of(TOPIC, header(2)) is None
    assert refused(producers, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_epochs_replace_each_other() -> None:
    producers = Producers()
    producers.restore_row(row(0, 0))
    assert refused(producers, 5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.duplicate_of(TOPIC, header(0, epoch=1)) is None
    begin(producers, 0, epoch=1)
    assert refused(producers, 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_failed_batch_may_be_repeated_and_none_overtakes_it() -> None:
    now = 0
    producers = Producers(now_ms=lambda: now)
    first, second = begin(producers, 0), begin(producers, 1)
    fail(first)
    fail(second)
    # The third must not take the first's place.
    assert refused(producers, 2) is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(producers, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert producers.duplicate_of(TOPIC, header(0)) is None
    now = 10_001  # nobody sends the first again
    assert refused(producers, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    begin(producers, 0)
    assert producers.duplicate_of(TOPIC, header(1)) is None
    assert refused(producers, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_failed_batch_leaves_earlier_ones_known() -> None:
    producers = Producers()
    begin(producers, 0)([9])
    fail(begin(producers, 1))
    assert repeated(producers, 0).offset == 9
    assert producers.duplicate_of(TOPIC, header(1)) is None
    assert refused(producers, 2) is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(producers, 2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_batch_in_doubt_keeps_its_place() -> None:
    producers = Producers()
    begin(producers, 0)([10])
    doubted = begin(producers, 1)
    behind = begin(producers, 2)
    waits = asyncio.create_task(repeated(producers, 1).stored())
    await asyncio.sleep(0)
    doubted(InDoubtError("who knows"))
    fail(behind)
    for answer in (waits, repeated(producers, 1).stored()):
        with pytest.raises(InDoubtError, match="who knows"):
            await answer
    assert producers.duplicate_of(TOPIC, header(2)) is None
    assert refused(producers, 3) == ErrorCode.KAFKA_STORAGE_ERROR
    ((_, _, _, batches),) = producers.dump(TOPIC)
    assert [batch[0] for batch in batches] == [0], "no checkpoint knows of it"


async def test_a_failed_new_epoch_leaves_the_old_one_known() -> None:
    producers = Producers()
    producers.restore_row(row(0, 40))
    failing = [begin(producers, 0, epoch=1), begin(producers, 0, epoch=2)]
    assert producers.dump(TOPIC)[0].epoch == 0, "only what is in the log"
    for settle in failing:
        fail(settle)
    assert repeated(producers, 0).offset == 40
    assert producers.duplicate_of(TOPIC, header(1)) is None
    assert refused(producers, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_stored_new_epoch_stays_if_the_next_one_fails() -> None:
    producers = Producers()
    producers.restore_row(row(0, 0))
    begin(producers, 0, epoch=1)([1])
    fail(begin(producers, 0, epoch=2))
    assert refused(producers, 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.duplicate_of(TOPIC, header(1, epoch=1)) is None


async def test_a_new_producer_must_begin_with_sequence_0() -> None:
    producers = Producers()
    assert refused(producers, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.duplicate_of(TOPIC, header(0)) is None


async def test_a_producer_that_may_have_been_dropped_is_unknown() -> None:
    producers = Producers()
    producers.forgotten_below = PRODUCER
    assert refused(producers, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.forgotten_below = PRODUCER + 1
    assert refused(producers, 5) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert producers.duplicate_of(TOPIC, header(0, epoch=1)) is None, "the epoch it then begins"


async def test_a_producer_with_an_id_of_another_broker_may_have_been_dropped() -> None:
    """The time of the id's assignment is unknown, so an honest producer must be able to go on."""
    producers = Producers()
    producers.ours_below = PRODUCER
    assert refused(producers, 5) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert producers.duplicate_of(TOPIC, header(0)) is None
    producers.ours_below = PRODUCER + 1
    assert refused(producers, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_topic_created_again_accepts_any_sequence() -> None:
    created_again = TOPIC._replace(generation=1)
    producers = Producers()
    assert producers.duplicate_of(created_again, header(5)) is None
    fail(producers.begin_append(created_again, header(5)))
    with pytest.raises(SequenceError) as caught:
        producers.duplicate_of(created_again, header(6))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR, "5 failed, and is next"
    assert producers.duplicate_of(created_again, header(5)) is None


def code_of(producers: Producers, partition: int, sequence: int, epoch: int = 0) -> ErrorCode:
    topic = TOPIC._replace(partition=partition)
    try:
        assert producers.duplicate_of(topic, header(sequence, epoch=epoch)) is None
    except SequenceError as e:
        return e.code
    return ErrorCode.NONE


def with_an_eviction(limit: int = 2) -> Producers:
    """Partitions 0 and 2 evict the producer in partition 1."""
    producers = Producers(limit)
    for partition in (0, 1, 0, 2):
        sequence = 1 if partition == 0 else 0
        producers.restore_row(row(sequence, 0)._replace(partition=partition))
    assert len(producers) == limit
    return producers


async def test_repeats_of_an_evicted_producer_are_not_stored() -> None:
    producers = with_an_eviction()
    for sequence in (0, 5, 0):
        assert code_of(producers, 1, sequence) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert code_of(producers, 1, 5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(producers, 1, 0, epoch=1) is ErrorCode.NONE, "the epoch that it begins"
    assert refused(producers, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "0 was used later"
    producers.restore_row(row(0, 0)._replace(partition=1, producer_epoch=1))
    assert code_of(producers, 1, 1, epoch=1) is ErrorCode.NONE
    assert code_of(producers, 1, 0) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_only_ids_that_may_have_been_evicted_are_unknown() -> None:
    producers = with_an_eviction()
    newer = read_header(batch_of(b"x", producer=(PRODUCER + 1, 0, 0)))
    assert producers.duplicate_of(TOPIC._replace(partition=9), newer) is None
    assert producers.duplicate_of(TOPIC._replace(org_id=2, partition=1), header(0)) is None
    assert code_of(producers, 9, 0) is ErrorCode.UNKNOWN_PRODUCER_ID, "nobody knows of partition 9"
    assert code_of(producers, 9, 0, epoch=1) is ErrorCode.NONE


async def test_an_org_evicts_only_its_own() -> None:
    producers = Producers(limit=2)
    producers.restore_row(row(0, 0)._replace(org_id=9))
    for partition in range(5):
        producers.restore_row(row(0, 0)._replace(partition=partition))
    assert len(producers) == 3
    found = producers.duplicate_of(TOPIC._replace(org_id=9), header(0))
    assert found is not None
    assert found.offset == 0


async def test_expired_producers_are_dropped_before_others_are_evicted() -> None:
    now = 1_000
    producers = Producers(2, lambda: now, expiration_ms=500)
    producers.restore_row(row(0, 0))
    now = 2_000
    for partition in (1, 2):
        producers.restore_row(row(0, 0)._replace(partition=partition))
    assert producers.dump_evicted() == []
    assert producers.duplicate_of(TOPIC, header(9)) is None, "any may come next, as in Kafka"


async def test_evictions_survive_in_a_checkpoint_and_are_assumed_without_one() -> None:
    read = Producers()
    read.load_evicted(with_an_eviction().dump_evicted())
    assert code_of(read, 1, 0) is ErrorCode.UNKNOWN_PRODUCER_ID
    lost = Producers()
    lost.evictions_unknown = True
    lost.begin_ids(range(PRODUCER + 1, 1 << 40))
    assert code_of(lost, 1, 0) is ErrorCode.UNKNOWN_PRODUCER_ID
    newer = read_header(batch_of(b"x", producer=(PRODUCER + 1, 0, 0)))
    assert lost.duplicate_of(TOPIC, newer) is None


async def test_silent_producers_expire() -> None:
    now = 1_000
    producers = Producers(now_ms=lambda: now)
    producers.restore_row(row(0, 0))
    begin(producers, 1)
    assert producers.expire(2_000) == 0, "a batch is on its way"
    producers.restore_row(row(0, 0)._replace(producer_id=PRODUCER + 1))
    now = 2_000
    begin(producers, 2)([2])
    assert producers.expire(2_000) == 1
    assert len(producers) == 1
    assert producers.expire(2_001) == 1
    assert producers.duplicate_of(TOPIC, header(9)) is None, "any may come next"
    failing = begin(producers, 9)
    fail(failing)
    assert refused(producers, 10) is ErrorCode.KAFKA_STORAGE_ERROR, "but 9 first"
    begin(producers, 9)([3])
    assert producers.duplicate_of(TOPIC, header(10)) is None


async def test_remembered_batches_survive_in_a_checkpoint() -> None:
    now = 1_000
    producers = Producers(now_ms=lambda: now)
    for n in range(7):
        producers.restore_row(row(n, 10 * n))
    begin(producers, 7)
    other = TOPIC._replace(partition=1)
    now = 2_000
    producers.restore_row(row(0, 0)._replace(partition=1))
    read = Producers()
    read.load(other, producers.dump(other))
    read.load(TOPIC, producers.dump(TOPIC))
    read.keep_partitions({TOPIC, other})
    assert [repeated(read, n).offset for n in range(2, 7)] == [20, 30, 40, 50, 60]
    assert read.duplicate_of(TOPIC, header(7)) is None, "it was not in the log yet"
    assert read.expire(2_000) == 1, "in order of use, whatever the order of loading"
    assert read.dump(TOPIC) == []


async def test_producers_of_deleted_partitions_are_dropped() -> None:
    producers = Producers()
    producers.restore_row(row(0, 0))
    producers.restore_row(row(0, 0)._replace(partition=1))
    producers.drop_partitions({TOPIC})
    assert producers.duplicate_of(TOPIC, header(0)) is None
    producers.keep_partitions(set())
    assert len(producers) == 0
