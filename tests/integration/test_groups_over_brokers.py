"""One gateway, two brokers: a group's offsets are at the home broker, wherever its topics are."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from quafka_proto.schema.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from quafka_proto.schema.quafka import DescribeGroupLagRequest, DescribeGroupLagResponse
from quafka_proto.schema.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from quafka_proto.schema.share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from quafka_proto.schema.topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.support.admin_calls import grow
from tests.support.fetch_calls import put
from tests.support.fleet import Fleet
from tests.support.group_members import GROUPS, poll
from tests.support.kafka_calls import create_topic, metadata, produce, values
from tests.support.raw_client import RawClient
from tests.support.share_calls import LONG, ShareMember

pytestmark = pytest.mark.long

UNKNOWN_TOPIC, LOADING, UNKNOWN_ID = 3, 14, 100
HERE, THERE = "orders", "logs.web"
BOTH = (HERE, THERE)
GATEWAYS = ("g", "h")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """What a test kills it starts again."""
    routes = [("logs.*", "b"), ("*", "a")]
    with Fleet(tmp_path_factory.mktemp("fleet"), routes, GATEWAYS, GROUPS) as running:
        yield running


@pytest.fixture
def client(fleet: Fleet) -> Iterator[RawClient]:
    """With a fresh topic at each broker."""
    with RawClient(fleet.address()) as connected:
        for topic in BOTH:
            until_known(connected, topic)
            create_topic(connected, topic, 2)
        yield connected
        for topic in BOTH:
            remove(connected, topic)


def topic_id(client: RawClient, topic: str) -> tuple[int, bytes]:
    asked = [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    (found,) = client.call(request, MetadataResponse, 12).topics
    return found.error_code, found.topic_id


def until_known(client: RawClient, topic: str) -> None:
    give_up = time.monotonic() + 30
    while topic_id(client, topic)[0] not in (0, UNKNOWN_TOPIC):
        assert time.monotonic() < give_up
        time.sleep(0.05)


def commit(client: RawClient, *rows: tuple[str | bytes, int, int]) -> list[int]:
    """(topic or its id, partition, offset)s in one request, from outside of the group."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic if isinstance(topic, str) else "",
            topic_id=topic if isinstance(topic, bytes) else bytes(16),
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata="m"
                )
            ],
        )
        for topic, partition, offset in rows
    ]
    by_id = isinstance(rows[0][0], bytes)
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    answer = client.call(request, OffsetCommitResponse, 10 if by_id else 8)
    return [topic.partitions[0].error_code for topic in answer.topics]


def fetch(client: RawClient, *topics: str | bytes) -> OffsetFetchResponseGroup:
    """Partitions 0 and 1 of these topics, or ids; all that there are where none is named."""
    asked = [
        OffsetFetchRequestTopics(
            name=topic if isinstance(topic, str) else "",
            topic_id=topic if isinstance(topic, bytes) else bytes(16),
            partition_indexes=[0, 1],
        )
        for topic in topics
    ]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=asked or None)]
    )
    by_id = bool(topics) and isinstance(topics[0], bytes)
    return client.call(request, OffsetFetchResponse, 10 if by_id else 8).groups[0]


def committed(client: RawClient, *topics: str | bytes) -> dict[str | bytes, list[int]]:
    group = fetch(client, *topics)
    assert group.error_code == 0
    return {t.name or t.topic_id: [p.committed_offset for p in t.partitions] for t in group.topics}


def lag(client: RawClient) -> dict[tuple[str, int], int]:
    """By topic and partition; -1 where it is not known."""
    request = DescribeGroupLagRequest(groups=["g"])
    (group,) = client.call(request, DescribeGroupLagResponse, 0).groups
    for topic in group.topics:
        for part in topic.partitions:
            assert (part.behind_ms > 0) == (part.lag > 0)
    return {(t.name, p.partition_index): p.lag for t in group.topics for p in t.partitions}


def deleted(client: RawClient, topic: str) -> int:
    answer = client.call(DeleteTopicsRequest(topic_names=[topic]), DeleteTopicsResponse, 5)
    (only,) = answer.responses
    return only.error_code


def delete_topic(client: RawClient, topic: str) -> None:
    assert deleted(client, topic) == 0


def remove(client: RawClient, topic: str) -> None:
    """For the next test. Where an answer is lost with a connection, clients ask again."""
    give_up = time.monotonic() + 20
    while deleted(client, topic) not in (0, UNKNOWN_TOPIC):
        assert time.monotonic() < give_up


def test_offsets_of_topics_at_both_brokers(fleet: Fleet, client: RawClient) -> None:
    assert commit(client, (THERE, 1, 5), (HERE, 0, 7), ("logs.none", 0, 1), (THERE, 2, 1)) == [
        0, 0, UNKNOWN_TOPIC, UNKNOWN_TOPIC,
    ]  # fmt: skip
    assert committed(client, THERE, HERE, "logs.none") == {
        THERE: [-1, 5], HERE: [7, -1], "logs.none": [-1, -1],
    }  # fmt: skip
    assert committed(client) == {THERE: [5], HERE: [7]}
    here, there = (topic_id(client, topic)[1] for topic in BOTH)
    assert commit(client, (there, 0, 6), (here, 1, 8)) == [0, 0]
    assert committed(client, there, here) == {there: [6, 5], here: [7, 8]}
    produce(client, THERE, *[b"x"] * 9)
    produce(client, HERE, *[b"x"] * 9)
    assert lag(client) == {(THERE, 0): 3, (THERE, 1): 0, (HERE, 0): 2, (HERE, 1): 0}
    nobody = bytes(15) + b"?"
    group = fetch(client, there, nobody)
    assert [t.partitions[0].error_code for t in group.topics] == [0, UNKNOWN_ID]
    assert group.topics[0].partitions[0].metadata == "m"
    # They are as durable as all others, and a gateway that starts finds them.
    fleet.brokers["a"].kill()
    fleet.start_broker("a")
    with RawClient(fleet.address("h")) as other:
        until_known(other, HERE)
        assert committed(other) == {THERE: [6, 5], HERE: [7, 8]}


def test_the_topics_broker_is_away(fleet: Fleet, client: RawClient) -> None:
    assert commit(client, (THERE, 0, 5), (HERE, 0, 7)) == [0, 0]
    fleet.gateways["h"].stop()
    fleet.brokers["b"].kill()
    fleet.start_gateway("h")
    # As it was last seen.
    assert commit(client, (THERE, 0, 6), (HERE, 0, 8)) == [0, 0]
    assert committed(client, *BOTH) == {THERE: [6, -1], HERE: [8, -1]}
    assert lag(client) == {(THERE, 0): -1, (HERE, 0): 0}
    with RawClient(fleet.address("h")) as other:  # which has never seen it
        until_known(other, HERE)
        assert commit(other, (THERE, 0, 9), (HERE, 0, 9)) == [LOADING, 0]
        assert fetch(other, *BOTH).error_code == LOADING, "nothing is not what was committed"
        assert committed(other, HERE) == {HERE: [9, -1]}
        assert committed(other) == {THERE: [6], HERE: [9]}
        fleet.start_broker("b")
        until_known(other, THERE)
        assert committed(other, *BOTH) == {THERE: [6, -1], HERE: [9, -1]}


def test_a_topic_that_is_made_anew_starts_afresh(fleet: Fleet, client: RawClient) -> None:
    assert commit(client, (THERE, 0, 5), (HERE, 0, 7)) == [0, 0]
    with RawClient(fleet.address("h")) as other:  # the first gateway does not hear of it
        until_known(other, THERE)
        delete_topic(other, THERE)
        assert commit(client, (THERE, 0, 6)) == [UNKNOWN_TOPIC]
        create_topic(other, THERE, 1)
    assert committed(client, THERE, HERE) == {THERE: [-1, -1], HERE: [7, -1]}
    assert lag(client) == {(HERE, 0): 0}
    assert commit(client, (THERE, 0, 1)) == [0]
    assert committed(client) == {THERE: [1], HERE: [7]}
    # Home is away when it is deleted, and so hears of it only by what is never asked for again.
    fleet.brokers["a"].kill()
    delete_topic(client, THERE)
    create_topic(client, THERE, 1)
    fleet.start_broker("a")
    until_known(client, HERE)
    assert committed(client) == {HERE: [7]}
    assert committed(client, THERE) == {THERE: [-1, -1]}


def test_offsets_are_deleted(fleet: Fleet, client: RawClient) -> None:
    assert commit(client, (THERE, 0, 5), (HERE, 0, 7)) == [0, 0]
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
            )
            for topic, partition in ((THERE, 2), (HERE, 0), (THERE, 0), ("logs.none", 0))
        ],
    )
    answer = client.call(request, OffsetDeleteResponse, 0)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [
        UNKNOWN_TOPIC, 0, 0, UNKNOWN_TOPIC,
    ]  # fmt: skip
    assert committed(client) == {}


def test_a_group_reads_both_and_goes_on_where_it_was(fleet: Fleet, client: RawClient) -> None:
    def read(count: int) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": fleet.bootstrap(),
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(list(BOTH))
        found: list[bytes] = []
        give_up = time.monotonic() + 20
        while len(found) < count:
            assert time.monotonic() < give_up, found
            found += poll(consumer)
        consumer.commit(asynchronous=False)
        consumer.close()
        return sorted(found)

    for topic in BOTH:
        produce(client, topic, *(b"%s-%d" % (topic.encode(), n) for n in range(3)))
    assert len(read(6)) == 6
    for topic in BOTH:
        produce(client, topic, b"next " + topic.encode())
    assert read(2) == [b"next logs.web", b"next orders"]
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap()})
    asked = [ConsumerGroupTopicPartitions("readers")]
    found = admin.list_consumer_group_offsets(asked)["readers"].result(10).topic_partitions
    assert [(p.topic, p.offset) for p in found or []] == [(THERE, 4), (HERE, 4)]


def test_a_share_group_reads_topics_of_both_brokers(client: RawClient, fleet: Fleet) -> None:
    ids = {topic: metadata(client, topic).topics[0].topic_id for topic in BOTH}

    def request(epoch: int, wait_ms: int = 0) -> ShareFetchRequest:
        topics = [ShareFetchTopic(topic_id, [ShareFetchPartition(0)]) for topic_id in ids.values()]
        return ShareFetchRequest(
            group_id="share",
            member_id="m",
            share_session_epoch=epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=10,
            topics=[] if epoch else topics,
        )

    assert client.call(request(0), ShareFetchResponse, 2).responses == []
    for epoch, topic in enumerate((THERE, HERE), 1):
        client.send(request(epoch, 20_000), 2)
        with RawClient(fleet.address()) as other:
            produce(other, topic, b"a record")
        _, response = client.receive(ShareFetchResponse, 2)
        (found,) = response.responses
        assert (found.topic_id, values(found.partitions[0])) == (ids[topic], [b"a record"])
    acknowledged = ShareAcknowledgeRequest(
        group_id="share",
        member_id="m",
        share_session_epoch=3,
        topics=[
            AcknowledgeTopic(topic_id, [AcknowledgePartition(0, [AcknowledgementBatch(0, 0, [1])])])
            for topic_id in ids.values()
        ],
    )
    answer = client.call(acknowledged, ShareAcknowledgeResponse, 2)
    assert [part.error_code for topic in answer.responses for part in topic.partitions] == [0, 0]


def test_a_share_group_knows_which_partitions_are_new_at_the_other_broker(
    client: RawClient,
) -> None:
    grows = "logs.grows"
    create_topic(client, grows, 2)
    put(client, grows, b"from before the group")
    for epoch in (0, -1):
        beat = ShareGroupHeartbeatRequest(
            group_id="grows", member_id="m", member_epoch=epoch,
            subscribed_topic_names=None if epoch else [grows],
        )  # fmt: skip
        assert client.call(beat, ShareGroupHeartbeatResponse, 1).error_code == 0
    assert grow(client, grows, 3) == 0
    put(client, grows, b"new", partition=2)
    member = ShareMember(client, "grows", topic_id(client, grows)[1])
    (part,) = member.fetch(0, 2, wait_ms=LONG)
    assert (part.partition_index, values(part)) == (2, [b"new"])


def test_a_group_of_the_new_protocol_has_topics_of_both_brokers(client: RawClient) -> None:
    """Its coordinator learns of the other broker's topic from the gateway."""
    join = ConsumerGroupHeartbeatRequest(
        group_id="both", member_id="m", rebalance_timeout_ms=60_000, topic_partitions=[],
        subscribed_topic_names=[*BOTH, "logs.none"],
    )  # fmt: skip
    answer = client.call(join, ConsumerGroupHeartbeatResponse, 1)
    assert answer.error_code == 0, answer
    assert answer.assignment is not None
    ids = {topic_id(client, topic)[1] for topic in BOTH}
    parts = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
    assert parts == {each: [0, 1] for each in ids}
    pattern = ConsumerGroupHeartbeatRequest(
        group_id="both", member_id="other", rebalance_timeout_ms=60_000, topic_partitions=[],
        subscribed_topic_regex="(orders|logs[.]web)",
    )  # fmt: skip
    matched = client.call(pattern, ConsumerGroupHeartbeatResponse, 1)
    assert matched.error_code == 0, matched
    assert matched.assignment is not None
    assert {each.topic_id for each in matched.assignment.topic_partitions} <= ids
    for member in ("m", "other"):
        leave = ConsumerGroupHeartbeatRequest(group_id="both", member_id=member, member_epoch=-1)
        assert client.call(leave, ConsumerGroupHeartbeatResponse, 1).error_code == 0
