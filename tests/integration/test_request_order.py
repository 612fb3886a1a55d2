"""Requests of one connection take effect in the order in which they were sent, as in Kafka.

Each case sends two requests without waiting for the first one's answer, several times over: the
second one must see what the first one did.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from quafka_proto.config_kinds import ConfigOperation, ConfigSource, ResourceType
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.group_admin import ListGroupsRequest, ListGroupsResponse
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from quafka_proto.schema.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.admin_calls import resource
from tests.support.fetch_calls import put
from tests.support.kafka_calls import VERSION, create_topic, fetch_request, produce_request
from tests.support.raw_client import RawClient

_TIMES = 10
_EARLIEST, _LATEST = -2, -1


def _list_offsets(topic: str, timestamp: int) -> ListOffsetsRequest:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[part])])


def _offset(client: RawClient) -> int:
    _, answer = client.receive(ListOffsetsResponse, 7)
    part = answer.topics[0].partitions[0]
    assert part.error_code == 0
    return part.offset


def _ask_for(topic: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )


def _partitions(client: RawClient) -> int:
    """How many partitions Metadata shows; -1 for an unknown topic."""
    _, answer = client.receive(MetadataResponse, 12)
    found = answer.topics[0]
    return -1 if found.error_code else len(found.partitions)


def _create(topic: str, partitions: int) -> CreateTopicsRequest:
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[wanted], timeout_ms=5_000)


def _delete(topic: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000)


def delete_records_then_list_offsets(client: RawClient, topic: str, turn: int) -> None:
    create_topic(client, topic) if turn == 0 else None
    end = put(client, topic, b"a", b"b") + 2
    part = DeleteRecordsPartition(partition_index=0, offset=end)
    cut = DeleteRecordsTopic(name=topic, partitions=[part])
    client.send_together(
        (DeleteRecordsRequest(topics=[cut], timeout_ms=5_000), 2),
        (_list_offsets(topic, _EARLIEST), 7),
    )
    client.receive(DeleteRecordsResponse, 2)
    assert _offset(client) == end


def commit_then_committed(client: RawClient, topic: str, turn: int) -> None:
    create_topic(client, topic) if turn == 0 else None
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=turn + 1)
    wanted = OffsetCommitRequestTopic(name=topic, partitions=[part])
    asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=topic, topics=[asked])
    client.send_together(
        (OffsetCommitRequest(group_id=topic, topics=[wanted]), 8),
        (OffsetFetchRequest(groups=[group]), 8),
    )
    client.receive(OffsetCommitResponse, 8)
    _, answer = client.receive(OffsetFetchResponse, 8)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == turn + 1


def commit_then_list_groups(client: RawClient, topic: str, turn: int) -> None:
    create_topic(client, topic) if turn == 0 else None
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    wanted = OffsetCommitRequestTopic(name=topic, partitions=[part])
    group = f"{topic}-{turn}"
    client.send_together(
        (OffsetCommitRequest(group_id=group, topics=[wanted]), 8), (ListGroupsRequest(), 4)
    )
    client.receive(OffsetCommitResponse, 8)
    _, answer = client.receive(ListGroupsResponse, 4)
    assert group in {each.group_id for each in answer.groups}


def _produce_then_list_offsets(client: RawClient, topic: str, turn: int, acks: int) -> None:
    create_topic(client, topic) if turn == 0 else None
    request = produce_request(topic, b"value")
    request.acks = acks
    client.send_together((request, VERSION["produce"]), (_list_offsets(topic, _LATEST), 7))
    if acks:
        client.receive(ProduceResponse, VERSION["produce"])
    assert _offset(client) == turn + 1


def produce_then_list_offsets(client: RawClient, topic: str, turn: int) -> None:
    _produce_then_list_offsets(client, topic, turn, 1)


def produce_with_acks_0_then_list_offsets(client: RawClient, topic: str, turn: int) -> None:
    _produce_then_list_offsets(client, topic, turn, 0)


def create_topics_then_metadata(client: RawClient, topic: str, turn: int) -> None:
    client.send_together((_create(f"{topic}-{turn}", 2), 5), (_ask_for(f"{topic}-{turn}"), 12))
    client.receive(CreateTopicsResponse, 5)
    assert _partitions(client) == 2


def create_partitions_then_metadata(client: RawClient, topic: str, turn: int) -> None:
    create_topic(client, topic) if turn == 0 else None
    more = CreatePartitionsTopic(name=topic, count=turn + 2, assignments=None)
    client.send_together(
        (CreatePartitionsRequest(topics=[more], timeout_ms=5_000), 3), (_ask_for(topic), 12)
    )
    client.receive(CreatePartitionsResponse, 3)
    assert _partitions(client) == turn + 2


def delete_topics_then_metadata(client: RawClient, topic: str, _turn: int) -> None:
    create_topic(client, topic)
    client.send_together((_delete(topic), 5), (_ask_for(topic), 12))
    client.receive(DeleteTopicsResponse, 5)
    assert _partitions(client) == -1


def delete_topics_then_create_topics(client: RawClient, topic: str, turn: int) -> None:
    create_topic(client, topic) if turn == 0 else None
    client.send_together((_delete(topic), 5), (_create(topic, turn + 2), 5), (_ask_for(topic), 12))
    _, deleted = client.receive(DeleteTopicsResponse, 5)
    _, created = client.receive(CreateTopicsResponse, 5)
    assert deleted.responses[0].error_code == 0
    assert created.topics[0].error_code == 0
    assert _partitions(client) == turn + 2


def alter_configs_then_describe_configs(client: RawClient, topic: str, turn: int) -> None:
    create_topic(client, topic) if turn == 0 else None
    change = IncrementalAlterableConfig(
        name="retention.ms", config_operation=ConfigOperation.SET, value=f"{100_000 + turn}"
    )
    altered = IncrementalAlterConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configs=[change]
    )
    asked = resource(ResourceType.TOPIC, topic, "retention.ms")
    client.send_together(
        (IncrementalAlterConfigsRequest(resources=[altered]), 1),
        (DescribeConfigsRequest(resources=[asked]), 4),
    )
    client.receive(IncrementalAlterConfigsResponse, 1)
    _, answer = client.receive(DescribeConfigsResponse, 4)
    (found,) = answer.results[0].configs
    assert found.config_source == ConfigSource.DYNAMIC_TOPIC
    assert found.value == f"{100_000 + turn}"


CASES = [
    delete_records_then_list_offsets,
    commit_then_committed,
    commit_then_list_groups,
    produce_then_list_offsets,
    produce_with_acks_0_then_list_offsets,
    create_topics_then_metadata,
    create_partitions_then_metadata,
    delete_topics_then_metadata,
    delete_topics_then_create_topics,
    alter_configs_then_describe_configs,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_request_sees_the_write_sent_before_it(
    client: RawClient, case: Callable[[RawClient, str, int], None]
) -> None:
    for turn in range(_TIMES):
        case(client, case.__name__, turn)


def test_pipelined_produces_are_stored_in_their_order(client: RawClient) -> None:
    create_topic(client, "in-order")
    for number in range(64):
        client.send(produce_request("in-order", b"%d" % number), VERSION["produce"])
    answers = [client.receive(ProduceResponse, VERSION["produce"])[1] for _ in range(64)]
    parts = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [part.base_offset for part in parts] == list(range(64))


def test_what_is_behind_a_parked_fetch_waits_for_it(client: RawClient, other: RawClient) -> None:
    create_topic(client, "behind")
    client.send_together(
        (fetch_request("behind", 0, max_wait_ms=300), VERSION["fetch"]),
        (produce_request("behind", b"late"), VERSION["produce"]),
    )
    began = time.monotonic()
    other.send(_list_offsets("behind", _LATEST), 7)
    assert _offset(other) == 0  # its own connection is not held up, and nothing is written yet
    _, fetched = client.receive(FetchResponse, VERSION["fetch"])
    # Run early, the produce would have ended the wait of the fetch before it.
    assert time.monotonic() - began > 0.2
    part = fetched.responses[0].partitions[0]
    assert (part.error_code, part.high_watermark, part.records) == (ErrorCode.NONE, 0, b"")
    client.receive(ProduceResponse, VERSION["produce"])
