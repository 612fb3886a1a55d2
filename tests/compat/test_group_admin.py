"""The administration of consumer groups, by librdkafka's and Kafka's own tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from quafka_proto.schema.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.support.cluster import Cluster
from tests.support.group_members import PARTITIONS, fill, member, owned, until
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

NOT_REQUESTED = -2_147_483_648


@pytest.fixture(scope="module")
def group(group_cluster: Cluster) -> Iterator[Consumer]:
    """The stable group "watched" with one member and a commit."""
    fill(group_cluster, "watched")
    settings = {"group.instance.id": "i", "client.id": "me", "session.timeout.ms": 30_000}
    consumer = member(group_cluster, "watched", "watched", settings)
    until(lambda: len(owned(consumer)) == PARTITIONS, consumer)
    consumer.commit(offsets=[TopicPartition("watched", 1, 7, "note")], asynchronous=False)
    yield consumer
    consumer.close()


@pytest.fixture
def admin(group_cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": group_cluster.bootstrap})


def test_groups_are_listed(admin: AdminClient, group: Consumer) -> None:
    def listed(**filters: Any) -> dict[str, Any]:
        found = admin.list_consumer_groups(**filters).result(10)
        assert not found.errors
        return {each.group_id: (each.state, each.type) for each in found.valid}

    mine = (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
    assert listed()["watched"] == mine
    assert listed(states={ConsumerGroupState.STABLE})["watched"] == mine
    assert "watched" not in listed(states={ConsumerGroupState.EMPTY})
    assert listed(types={ConsumerGroupType.CONSUMER}) == {}


def test_a_group_is_described(admin: AdminClient, group: Consumer) -> None:
    answers = admin.describe_consumer_groups(["watched"], include_authorized_operations=True)
    found = answers["watched"].result(10)
    assert (found.state, found.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    assert set(found.authorized_operations) == {
        AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    }  # fmt: skip
    (one,) = found.members
    assert (one.client_id, one.host, one.group_instance_id) == ("me", "/127.0.0.1", "i")
    assert {place.partition for place in one.assignment.topic_partitions} == owned(group)


def test_offsets_are_listed_altered_and_deleted_with_their_group(
    group_cluster: Cluster, admin: AdminClient, group: Consumer
) -> None:
    def offsets(name: str) -> list[tuple[str, int, int]]:
        asked = ConsumerGroupTopicPartitions(name)
        (answer,) = admin.list_consumer_group_offsets([asked]).values()
        return [(p.topic, p.partition, p.offset) for p in answer.result(10).topic_partitions]

    assert offsets("watched") == [("watched", 1, 7)]
    wanted = [TopicPartition("watched", p, 10 + p) for p in (0, 2)]
    (done,) = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("altered", wanted)]
    ).values()
    done.result(10)
    assert offsets("altered") == [("watched", 0, 10), ("watched", 2, 12)]
    (refused,) = admin.delete_consumer_groups(["watched"]).values()
    with pytest.raises(KafkaException) as caught:
        refused.result(10)
    assert caught.value.args[0].code() == ErrorCode.NON_EMPTY_GROUP
    (deleted,) = admin.delete_consumer_groups(["altered"]).values()
    deleted.result(10)
    assert offsets("altered") == []


def test_offsets_are_deleted_where_nobody_reads(group_cluster: Cluster, group: Consumer) -> None:
    def delete(name: str, topic: str) -> OffsetDeleteResponse:
        parts = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=parts)]
        request = OffsetDeleteRequest(group_id=name, topics=topics)
        with RawClient(group_cluster.address) as client:
            return client.call(request, OffsetDeleteResponse, 0)

    def code(answer: OffsetDeleteResponse) -> int:
        return answer.topics[0].partitions[0].error_code

    fill(group_cluster, "unread")
    group.commit(offsets=[TopicPartition("unread", 0, 3)], asynchronous=False)
    assert code(delete("watched", "watched")) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert code(delete("watched", "nowhere")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(delete("watched", "unread")) == ErrorCode.NONE
    (left,) = group.committed([TopicPartition("unread", 0)], timeout=10)
    assert left.offset < 0
    assert delete("nobody", "unread").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete("", "unread").error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(group_cluster: Cluster, group: Consumer, version: int) -> None:
    request = DescribeGroupsRequest(groups=["watched", "nobody"])
    with RawClient(group_cluster.address) as client:
        known, nobody = client.call(request, DescribeGroupsResponse, version).groups
    assert (known.error_code, known.group_state, known.protocol_data) == (0, "Stable", "range")
    assert known.members[0].member_assignment
    assert known.members[0].member_metadata
    assert known.authorized_operations == NOT_REQUESTED
    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (nobody.error_code, nobody.group_state) == (missing, "Dead")


@pytest.mark.parametrize("version", range(6))
def test_list_groups(group_cluster: Cluster, group: Consumer, version: int) -> None:
    request = ListGroupsRequest()
    if version >= 4:
        request.states_filter = ["stable"]
    if version >= 5:
        request.types_filter = ["Classic"]
    with RawClient(group_cluster.address) as client:
        found = client.call(request, ListGroupsResponse, version).groups
    mine = next(each for each in found if each.group_id == "watched")
    assert mine.protocol_type == "consumer"
    assert mine.group_state == ("Stable" if version >= 4 else "")
    assert mine.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(group_cluster: Cluster, version: int) -> None:
    request = DeleteGroupsRequest(groups_names=["nobody", "", "nobody"])
    with RawClient(group_cluster.address) as client:
        results = client.call(request, DeleteGroupsResponse, version).results
    assert [(each.group_id, each.error_code) for each in results] == [
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]  # fmt: skip
