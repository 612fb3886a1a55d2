"""Records are read from a running cluster: merged, within times, with their transactions."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_client.filters import containing
from quafka_console.data.messages.decoding import Choice, Progress
from quafka_console.data.messages.reading import Limits, ReadRange, newest, onwards
from quafka_console.data.messages.records import Outcome, ReadRecord
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.cluster import Cluster
from tests.support.kafka_calls import VERSION, create_topic
from tests.support.raw_client import RawClient

PARTITIONS = 3
TIMES = ([10, 40, 70, 100], [20, 50, 80], [30, 60, 90])
ALL = Choice()


@pytest.fixture(scope="module")
def timed(shared_cluster: Cluster) -> Cluster:
    """A topic of three partitions, each with records of its own times in batches of one."""
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "timed", PARTITIONS)
        for partition, times in enumerate(TIMES):
            for offset, time in enumerate(times):
                batch = build_batch([Record(0, time, None, b"v%d" % time, [])])
                data = PartitionProduceData(index=partition, records=batch)
                request = ProduceRequest(
                    acks=-1,
                    timeout_ms=5_000,
                    topic_data=[TopicProduceData(name="timed", partition_data=[data])],
                )
                answer = client.call(request, ProduceResponse, VERSION["produce"])
                (result,) = answer.responses[0].partition_responses
                assert (result.error_code, result.base_offset) == (0, offset)
    return shared_cluster


def times(records: list[ReadRecord]) -> list[int]:
    return [each.timestamp for each in records]


async def test_partitions_are_merged_by_time(timed: Cluster) -> None:
    async with ClientCluster([timed.address]) as cluster:

        async def first(span: ReadRange, count: int = 50, choice: Choice = ALL) -> list[int]:
            return times(await onwards(cluster, "timed", span, choice, Limits(count), Progress()))

        async def last(span: ReadRange, count: int = 50, choice: Choice = ALL) -> list[int]:
            return times(await newest(cluster, "timed", span, choice, Limits(count), Progress()))

        assert await first(ReadRange()) == list(range(10, 101, 10))
        assert await first(ReadRange(), 4) == [10, 20, 30, 40]
        assert await first(ReadRange(since=35)) == [40, 50, 60, 70, 80, 90, 100]
        assert await first(ReadRange(since=35, until=70)) == [40, 50, 60]
        assert await first(ReadRange(offset=2)) == [70, 80, 90, 100]
        assert await first(ReadRange([0, 2])) == [10, 30, 40, 60, 70, 90, 100]
        assert await first(ReadRange(), 2, Choice(containing("0"))) == [10, 20]
        assert await first(ReadRange(since=1_000)) == []
        assert await last(ReadRange(), 3) == [100, 90, 80]
        assert await last(ReadRange(until=70), 3) == [60, 50, 40]
        assert await last(ReadRange([1]), 50) == [80, 50, 20]
        with pytest.raises(ClientError, match="none of these partitions"):
            await first(ReadRange([7]))


async def test_a_reading_is_bounded_and_can_be_stopped(timed: Cluster) -> None:
    async with ClientCluster([timed.address]) as cluster:
        progress = Progress()
        found = await onwards(cluster, "timed", ReadRange(), ALL, Limits(50, fetches=2), progress)
        assert progress.limited
        assert times(found) == [10, 20, 40, 50, 70, 80, 100]
        stopped = Progress(stopped=True)
        assert await newest(cluster, "timed", ReadRange(), ALL, Limits(50), stopped) == []
        whole = Progress()
        await newest(cluster, "timed", ReadRange(), ALL, Limits(50), whole)
        assert (whole.scanned, whole.found, whole.limited) == (10, 10, False)
        few = Progress()
        nothing = Choice(containing("nothing"))
        await newest(cluster, "timed", ReadRange([0]), nothing, Limits(1, scan=2), few)
        assert few.scanned == 2


async def test_the_newest_matches_are_found_in_ever_larger_windows(shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "long")
    producer = Producer({"bootstrap.servers": shared_cluster.bootstrap})
    for number in range(5_000):
        producer.produce("long", b"%05d" % number, partition=0)
    assert producer.flush(60) == 0
    async with ClientCluster([shared_cluster.address]) as cluster:
        progress = Progress()
        near = Choice(containing("04998"))
        found = await newest(cluster, "long", ReadRange(), near, Limits(1), progress)
        assert [each.offset for each in found] == [4_998]
        assert progress.scanned == 500
        progress = Progress()
        far = Choice(containing("00100"))
        found = await newest(cluster, "long", ReadRange(), far, Limits(50), progress)
        assert [each.offset for each in found] == [100]
        assert progress.scanned == 5_000
        found = await newest(cluster, "long", ReadRange(), far, Limits(50, scan=1_000), Progress())
        assert found == []


async def test_records_show_what_became_of_their_transactions(shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "outcomes")
    settings = {"bootstrap.servers": shared_cluster.bootstrap, "linger.ms": 0}
    producer = Producer({**settings, "transactional.id": "outcomes"})
    producer.init_transactions(60)
    for value, ends in (
        ("kept", producer.commit_transaction), ("gone", producer.abort_transaction), ("open", None),
    ):  # fmt: skip
        producer.begin_transaction()
        producer.produce("outcomes", value, partition=0)
        producer.flush(60)
        if ends is not None:
            ends(60)
    plain = Producer(settings)
    plain.produce("outcomes", "plain", partition=0)
    assert plain.flush(60) == 0
    async with ClientCluster([shared_cluster.address]) as cluster:
        for read in (newest, onwards):
            found = await read(cluster, "outcomes", ReadRange(), ALL, Limits(50), Progress())
            outcomes = {
                each.value.data: each.outcome for each in found if each.value and not each.mark
            }
            assert outcomes == {
                b"kept": Outcome.COMMITTED, b"gone": Outcome.ABORTED,
                b"open": Outcome.HELD, b"plain": Outcome.HELD,
            }  # fmt: skip
            assert sorted(each.mark for each in found if each.mark) == ["ABORT", "COMMIT"]
            committed = Choice(committed=True)
            visible = await read(
                cluster, "outcomes", ReadRange(), committed, Limits(50), Progress()
            )
            assert [each.value.data for each in visible if each.value] == [b"kept"]
    producer.abort_transaction(60)
