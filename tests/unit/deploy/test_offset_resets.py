"""Plans of moves of offsets: what a group would skip, and what it would read again."""

from __future__ import annotations

import pytest

from quafka_client.cluster import ClientCluster
from quafka_client.offset_resets import OffsetMove, UnknownPartitionError, plan
from quafka_client.positions import RequestedPosition
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quafka_proto.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.deploy.fake_kafka import HOST, SECONDS, Fake, serving


def move(before: int | None, after: int) -> OffsetMove:
    return OffsetMove("t", 0, before, after, log_start=10, end=100)


@pytest.mark.parametrize(
    ("before", "after", "skipped", "repeated"),
    [
        (20, 50, 30, 0),
        (50, 20, 0, 30),
        (20, 20, 0, 0),
        (5, 50, 40, 0),  # those below the log's start are gone
        (500, 90, 0, 10),  # the group was past the end
        (None, 50, 0, 0),
    ],
)
def test_what_a_move_skips_and_repeats(
    before: int | None, after: int, skipped: int, repeated: int
) -> None:
    found = move(before, after)
    assert (found.skipped, found.repeated) == (skipped, repeated)


def scripted(offset: int) -> Fake:
    """A topic with two partitions, which has this offset at every position."""
    fake = Fake({2: (1, 10), 3: (0, 12)})
    partitions = [MetadataResponsePartition(partition_index=n, leader_id=0) for n in range(2)]
    answers = [ListOffsetsPartitionResponse(partition_index=n, offset=offset) for n in range(2)]
    fake.answers[2] = ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name="t", partitions=answers)]
    )
    topic = MetadataResponseTopic(name="t", partitions=partitions)
    fake.answers[3] = MetadataResponse(
        cluster_id="c", brokers=[MetadataResponseBroker(node_id=0, host=HOST)], topics=[topic]
    )
    return fake


async def planned(
    position: RequestedPosition,
    named: list[tuple[str, list[int] | None]],
    before: dict[tuple[str, int], int],
) -> list[OffsetMove]:
    fake = scripted(40)
    async with serving(fake):
        metadata = fake.answers[3]
        assert isinstance(metadata, MetadataResponse)
        metadata.brokers[0].port = fake.port
        async with ClientCluster([(HOST, fake.port)], SECONDS) as cluster:
            return await plan(cluster, named, position, before)


async def test_a_move_stays_within_the_partition() -> None:
    found = await planned(RequestedPosition("offset", 7), [("t", None)], {("t", 0): 90})
    assert found == [OffsetMove("t", 0, 90, 40, 40, 40), OffsetMove("t", 1, None, 40, 40, 40)]


async def test_without_topics_the_partitions_with_offsets_move() -> None:
    found = await planned(RequestedPosition("end"), [], {("t", 1): 3})
    assert [(each.partition, each.before, each.after) for each in found] == [(1, 3, 40)]
    assert await planned(RequestedPosition("end"), [], {}) == []


async def test_a_shift_needs_an_offset() -> None:
    found = await planned(RequestedPosition("shift", -5), [("t", None)], {("t", 1): 44})
    assert [(each.partition, each.after) for each in found] == [(1, 40)]


async def test_a_partition_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownPartitionError, match="topic 't' has no partition 2"):
        await planned(RequestedPosition("start"), [("t", [0, 2])], {})
