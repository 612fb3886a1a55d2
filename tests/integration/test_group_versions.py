"""The group APIs in every version that is advertised, over the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from quafka_proto.schema.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.support.cluster import Cluster
from tests.support.group_members import GROUPS
from tests.support.kafka_calls import create_topic, metadata
from tests.support.raw_client import RawClient

E = ErrorCode


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("groups"), broker_args=GROUPS) as running:
        yield running


@pytest.fixture
def client(shared: Cluster) -> Iterator[RawClient]:
    with RawClient(shared.address) as connected:
        yield connected


def join(client: RawClient, group: str, version: int) -> JoinGroupResponse:
    """Join as a new member does in this version."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    if version >= 1:
        request.rebalance_timeout_ms = 6_000
    answer = client.call(request, JoinGroupResponse, version)
    if version < 4:
        return answer
    assert answer.error_code == E.MEMBER_ID_REQUIRED  # KIP-394
    request.member_id = answer.member_id
    return client.call(request, JoinGroupResponse, version)


@pytest.mark.parametrize("version", range(10))
def test_a_member_comes_and_goes(client: RawClient, version: int) -> None:
    group = f"versions-{version}"
    joined = join(client, group, version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assert (joined.protocol_name, joined.skip_assignment) == ("range", False)
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert [member.metadata for member in joined.members] == [b"m"]

    me = joined.member_id
    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    sync = SyncGroupRequest(group_id=group, generation_id=1, member_id=me, assignments=[share])
    in_sync = min(version, 5)
    if in_sync >= 5:
        unnamed = client.call(sync, SyncGroupResponse, in_sync)
        assert unnamed.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        sync.protocol_type, sync.protocol_name = "consumer", "range"
    synced = client.call(sync, SyncGroupResponse, in_sync)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    assert synced.protocol_name == ("range" if in_sync >= 5 else None)

    in_heartbeat = min(version, 4)
    alive = HeartbeatRequest(group_id=group, generation_id=1, member_id=me)
    beat = client.call(alive, HeartbeatResponse, in_heartbeat)
    assert beat.error_code == 0

    in_leave = min(version, 5)
    leave = LeaveGroupRequest(group_id=group)
    if in_leave < 3:
        leave.member_id = joined.member_id
    else:
        leave.members = [MemberIdentity(member_id=joined.member_id)]
    left = client.call(leave, LeaveGroupResponse, in_leave)
    assert (left.error_code, [each.error_code for each in left.members]) == (
        0, [] if in_leave < 3 else [0],
    )  # fmt: skip
    again = client.call(leave, LeaveGroupResponse, in_leave)
    codes = [again.error_code] if in_leave < 3 else [each.error_code for each in again.members]
    assert codes == [E.UNKNOWN_MEMBER_ID]
    after = client.call(alive, HeartbeatResponse, in_heartbeat)
    assert after.error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(10))
def test_a_join_that_is_refused(client: RawClient, version: int) -> None:
    request = JoinGroupRequest(group_id="", session_timeout_ms=6_000, protocol_type="consumer")
    answer = client.call(request, JoinGroupResponse, version)
    assert answer.error_code == E.INVALID_GROUP_ID
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(2))
def test_heartbeats_that_are_refused_before_their_group_is_sought(
    client: RawClient, version: int
) -> None:
    """As by Apache Kafka 4.3, for a group that does not exist."""

    def code(member_id: str, epoch: int, instance_id: str | None = None) -> int:
        request = ConsumerGroupHeartbeatRequest(
            group_id="no-such-group", member_id=member_id, member_epoch=epoch,
            instance_id=instance_id,
        )  # fmt: skip
        return client.call(request, ConsumerGroupHeartbeatResponse, version).error_code

    for epoch in (-1, -2, 1):
        assert code("", epoch, "i") == E.INVALID_REQUEST
    for epoch in (-2, -3):
        assert code("m", epoch) == E.INVALID_REQUEST
    assert code("m", -3, "i") == E.INVALID_REQUEST
    for epoch in (-1, 1):
        assert code("m", epoch) == E.GROUP_ID_NOT_FOUND
    assert code("m", -2, "i") == E.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(shared: Cluster, client: RawClient, version: int) -> None:
    def ask(key: str, key_type: int = 0) -> tuple[int, int, str]:
        request = FindCoordinatorRequest()
        if version >= 1:
            request.key_type = key_type
        if version < 4:
            request.key = key
            one = client.call(request, FindCoordinatorResponse, version)
            return one.error_code, one.node_id, f"{one.host}:{one.port}"
        request.coordinator_keys = ["another", key]
        answer = client.call(request, FindCoordinatorResponse, version)
        assert [each.key for each in answer.coordinators] == ["another", key]
        found = answer.coordinators[1]
        return found.error_code, found.node_id, f"{found.host}:{found.port}"

    assert ask("g") == (0, 0, shared.bootstrap)
    assert ask("")[:2] == (E.INVALID_GROUP_ID, -1)
    if version >= 1:
        assert ask("transaction", 1) == (0, 0, shared.bootstrap)
        assert ask("", 1)[:2] == (E.INVALID_REQUEST, -1)
        assert ask("share", 2)[:2] == (E.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", range(11))
def test_offsets_come_back(client: RawClient, version: int) -> None:
    name = f"offsets-{version}"
    create_topic(client, name, 2)
    topic_id = metadata(client, name).topics[0].topic_id
    part = OffsetCommitRequestPartition(
        partition_index=1, committed_offset=5, committed_metadata="note"
    )
    topic = OffsetCommitRequestTopic(partitions=[part])
    if version < 10:
        topic.name = name
    else:
        topic.topic_id = topic_id
    commit = OffsetCommitRequest(group_id=name, topics=[topic])
    answer = client.call(commit, OffsetCommitResponse, version)
    assert answer.topics[0].partitions[0].error_code == 0
    assert (answer.topics[0].name or answer.topics[0].topic_id) == (
        name if version < 10 else topic_id
    )
    assert offsets(client, name, topic_id, version, everything=False) == [
        (0, -1, ""),
        (1, 5, "note"),
    ]
    if version >= 2:
        assert offsets(client, name, topic_id, version, everything=True) == [(1, 5, "note")]


def offsets(
    client: RawClient, name: str, topic_id: bytes, version: int, *, everything: bool
) -> list[tuple[int, int, str | None]]:
    """What OffsetFetch says of the group and topic of that name."""
    if version < 8:
        old = [OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1])]
        request = OffsetFetchRequest(group_id=name, topics=None if everything else old)
        answer = client.call(request, OffsetFetchResponse, version)
        assert (answer.error_code, answer.topics[0].name) == (0, name)
        return [
            (p.partition_index, p.committed_offset, p.metadata)
            for p in answer.topics[0].partitions
            if p.error_code == 0
        ]
    asked = OffsetFetchRequestTopics(partition_indexes=[0, 1])
    if version < 10:
        asked.name = name
    else:
        asked.topic_id = topic_id
    group = OffsetFetchRequestGroup(group_id=name, topics=None if everything else [asked])
    found = client.call(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version).groups[0]
    assert (found.group_id, found.error_code) == (name, 0)
    (topic,) = found.topics
    assert (topic.name or topic.topic_id) == (name if version < 10 else topic_id)
    return [
        (p.partition_index, p.committed_offset, p.metadata)
        for p in topic.partitions
        if p.error_code == 0
    ]


@pytest.mark.parametrize("version", range(11))
def test_offsets_of_no_group(client: RawClient, version: int) -> None:
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(group_id="", topics=topics)
        answer = client.call(request, OffsetFetchResponse, version)
        code = answer.error_code if version >= 2 else answer.topics[0].partitions[0].error_code
    else:
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="", topics=None)])
        code = client.call(asked, OffsetFetchResponse, version).groups[0].error_code
    assert code == E.INVALID_GROUP_ID
