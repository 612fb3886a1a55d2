"""Where share groups are: described, altered and deleted, by requests without a client library."""

from __future__ import annotations

import asyncio

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from quafka_proto.schema.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from quafka_proto.schema.share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from tests.support.admin_calls import grow
from tests.support.cluster import Cluster
from tests.support.fetch_calls import put
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient
from tests.support.raw_group import Connection
from tests.support.raw_new_groups import RawShareConsumer

TOPIC = GROUP = "share-offsets"


def _described(client: RawClient, group: str = GROUP) -> list[tuple[int, int]] | int:
    """The start and the lag in each partition, or the group's error code."""
    groups = [
        DescribeShareGroupOffsetsRequestGroup(group_id=each, topics=None)
        for each in ("nobody's", group, "nobody's")
    ]
    request = DescribeShareGroupOffsetsRequest(groups=groups)
    before, found, after = client.call(request, DescribeShareGroupOffsetsResponse, 1).groups
    assert before == after == DescribeShareGroupOffsetsResponseGroup(group_id="nobody's")
    assert found.group_id == group
    if found.error_code:
        return found.error_code
    parts = [part for topic in found.topics for part in topic.partitions]
    assert not any(part.error_code for part in parts)
    return [(part.start_offset, part.lag) for part in parts]


def _altered(
    client: RawClient, start: int, topic_name: str = TOPIC, group: str = GROUP
) -> list[int]:
    """The error code of the group, and that of the partition if the group has none."""
    part = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=start)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name=topic_name, partitions=[part])
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=[topic])
    answer = client.call(request, AlterShareGroupOffsetsResponse, 0)
    return [answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)]


def _deleted(client: RawClient) -> list[int]:
    topic = DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)
    request = DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])
    answer = client.call(request, DeleteShareGroupOffsetsResponse, 0)
    return [answer.error_code, *(topic.error_code for topic in answer.responses)]


async def _read(address: tuple[str, int], client: RawClient, *new: bytes) -> int:
    """Join, read what there is and what is new, and leave; the number of accepted records.

    Meanwhile the group has a member, and refuses changes.
    """
    member = RawShareConsumer(await Connection.open(address), GROUP, TOPIC)
    await member.join()
    accepted = await member.fetch()  # which accepts nothing yet: it begins the session
    if new:
        await asyncio.to_thread(produce, client, TOPIC, *new)
        accepted += await member.fetch(wait_ms=5_000)
    accepted += await member.fetch(wait_ms=0)
    assert await asyncio.to_thread(_altered, client, 0) == [ErrorCode.NON_EMPTY_GROUP]
    assert await asyncio.to_thread(_deleted, client) == [ErrorCode.NON_EMPTY_GROUP]
    await member.leave()
    return accepted


def test_they_are_described_altered_and_deleted(shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, TOPIC)
        assert _described(client) == []
        assert _deleted(client) == [ErrorCode.GROUP_ID_NOT_FOUND]
        produce(client, TOPIC, b"before the group")
        assert asyncio.run(_read(shared_cluster.address, client, b"1", b"2", b"3")) == 3
        assert _described(client) == [(4, 0)]
        assert _altered(client, 0) == [0, 0]
        assert _described(client) == [(0, 4)]
        assert asyncio.run(_read(shared_cluster.address, client)) == 4
        assert _deleted(client) == [0, 0]
        assert _described(client) == []
        assert _deleted(client) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("empty", [False, True], ids=["a member stays", "the group is empty"])
def test_partitions_that_a_topic_gets_are_read_from_their_start(
    shared_cluster: Cluster, empty: bool
) -> None:
    topic = group = f"share-grows-{empty}"
    with RawClient(shared_cluster.address) as client:
        create_topic(client, topic)

        async def read() -> int:
            member = RawShareConsumer(await Connection.open(shared_cluster.address), group, topic)
            await member.join()
            await member.fetch(wait_ms=0)
            if empty:
                await member.leave()
                member = RawShareConsumer(
                    await Connection.open(shared_cluster.address), group, topic
                )
            assert await asyncio.to_thread(grow, client, topic, 2) == 0
            await asyncio.to_thread(put, client, topic, b"1", b"2", partition=1)
            member.assigned, member.session = set(), 0
            await member.join()
            await member.fetch(wait_ms=5_000)
            accepted = await member.fetch(wait_ms=0)
            await member.leave()
            return accepted

        assert asyncio.run(read()) == 2


def test_offsets_that_are_altered_create_the_group(shared_cluster: Cluster) -> None:
    """`kafka-share-groups.sh --reset-offsets` before the group has its first member."""
    with RawClient(shared_cluster.address) as client:
        topic, group = "share-offsets-first", "share-offsets-first"
        create_topic(client, topic)
        produce(client, topic, b"1", b"2", b"3")
        assert _altered(client, 1, topic, group) == [0, 0]
        assert _described(client, group) == [(1, 2)]
        (found,) = client.call(
            ShareGroupDescribeRequest(group_ids=[group]), ShareGroupDescribeResponse, 1
        ).groups
        assert (found.error_code, found.group_state, found.members) == (0, "Empty", [])
        question = DescribeGroupsRequest(groups=[group, "nobody"])
        other, nobody = client.call(question, DescribeGroupsResponse, 6).groups
        assert other.error_message == f"Group {group} is not a classic group (share group)."
        assert nobody.error_message == "Group nobody not found."
        assert {other.protocol_type, nobody.protocol_type} == {""}
        (deleted,) = client.call(
            DeleteGroupsRequest(groups_names=[group, group]), DeleteGroupsResponse, 2
        ).results
        assert deleted.error_code == 0
        assert _described(client, group) == []
