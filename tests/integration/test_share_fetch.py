"""ShareFetch and ShareAcknowledge (KIP-932) over real processes and a real mesh."""

from __future__ import annotations

from typing import Any

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.share_fetch import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
)
from tests.support.admin_calls import set_config
from tests.support.cluster import Cluster
from tests.support.fetch_calls import delete, put
from tests.support.kafka_calls import metadata, values
from tests.support.raw_client import RawClient
from tests.support.share_calls import ACCEPT, LONG, REJECT, RELEASE, RENEW, ShareMember, acquired

GROUP = 32
"""The type of the resource."""


@pytest.fixture
def group(topic: str) -> str:
    return f"share-{topic}"


def id_of(client: RawClient, topic: str) -> bytes:
    return metadata(client, topic).topics[0].topic_id


def test_members_share_the_records_of_a_partition(
    client: RawClient, other: RawClient, topic: str, group: str
) -> None:
    topic_id = id_of(client, topic)
    one, two = (
        ShareMember(each, group, topic_id, name) for each, name in ((client, "1"), (other, "2"))
    )
    assert one.fetch(0) == []
    assert two.fetch(0) == []
    put(client, topic, b"a", b"b", b"c")
    put(client, topic, b"d", b"e")
    (first,) = one.fetch(max_records=1)
    assert (acquired(first), values(first)) == ([(0, 2, 1)], [b"a", b"b", b"c"])
    (second,) = two.fetch(max_records=1, exact=1)
    assert (acquired(second), values(second)) == ([(3, 3, 1)], [b"d", b"e"])
    (third,) = one.fetch(acks={0: [(0, 2, [ACCEPT, RELEASE, REJECT])]}, batch_size=1)
    assert third.acknowledge_error_code == 0
    assert acquired(third)[-1] == (4, 4, 1)
    assert two.acknowledge({0: [(2, 2, [ACCEPT])]}) == [ErrorCode.INVALID_RECORD_STATE]
    assert two.acknowledge({0: [(3, 3, [RENEW])]}, renew=1) == [0]
    assert two.acknowledge({0: [(3, 3, [RENEW])]}) == [ErrorCode.INVALID_REQUEST]
    assert two.acknowledge({0: [(3, 3, [ACCEPT])]}, epoch=-1) == [0]
    assert one.acknowledge({0: [(4, 4, [RELEASE])]}, epoch=-1) == [0]
    again = ShareMember(client, group, topic_id, "3")
    (last,) = again.fetch(0)
    assert acquired(last) == [(1, 1, 2), (4, 4, 2)]


def test_a_fetch_waits_for_records(
    client: RawClient, other: RawClient, topic: str, group: str
) -> None:
    one = ShareMember(client, group, id_of(client, topic))
    assert one.fetch(0, 1) == []
    client.send(one.request(wait_ms=LONG), 2)
    put(other, topic, b"late", partition=1)
    (part,) = one.answered(client.receive(ShareFetchResponse, 2)[1])
    assert (part.partition_index, values(part)) == (1, [b"late"])


def test_records_of_a_lost_connection_are_given_back(
    shared_cluster: Cluster, client: RawClient, topic: str, group: str
) -> None:
    topic_id = id_of(client, topic)
    with RawClient(shared_cluster.address) as lost:
        one = ShareMember(lost, group, topic_id, "lost")
        assert one.fetch(0) == []
        put(client, topic, b"x")
        assert acquired(one.fetch()[0]) == [(0, 0, 1)]
    two = ShareMember(client, group, topic_id)
    two.fetch()
    (part,) = two.fetch(0, wait_ms=LONG)
    assert acquired(part) == [(0, 0, 2)]


def test_a_changed_config_counts_for_the_next_request(
    client: RawClient, topic: str, group: str
) -> None:
    one = ShareMember(client, group, id_of(client, topic))
    assert one.fetch(0) == []
    put(client, topic, b"x")
    assert acquired(one.fetch()[0]) == [(0, 0, 1)]
    for enabled, code in ((True, 0), (False, ErrorCode.INVALID_REQUEST), (True, 0)):
        name, value = "share.renew.acknowledge.enable", str(enabled).lower()
        assert set_config(client, group, name, value, GROUP) == 0
        assert one.acknowledge({0: [(0, 0, [RENEW])]}, renew=1) == [code]


def test_sessions(client: RawClient, topic: str, group: str) -> None:
    topic_id = id_of(client, topic)
    one = ShareMember(client, group, topic_id)

    def error(**options: Any) -> int:
        return client.call(one.request(**options), ShareFetchResponse, 2).error_code

    assert error(epoch=1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert error(epoch=-1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert one.fetch(0) == []
    assert error(epoch=7) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert error(renew=1) == ErrorCode.INVALID_REQUEST
    initial = ShareAcknowledgeRequest(group_id=group, member_id="m", share_session_epoch=0)
    refused = client.call(initial, ShareAcknowledgeResponse, 1)
    assert refused.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    one.fetch(1, forget=0)
    put(client, topic, b"0")
    assert one.fetch() == [], "forgotten"
    one.group = ""
    assert error() == ErrorCode.INVALID_GROUP_ID
    one.group, one.member = group, ""
    assert error() == ErrorCode.INVALID_REQUEST
    one.member, one.topic_id, one.epoch = "m", bytes([7] * 16), 0
    (part,) = one.fetch(0)
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    one.topic_id, one.epoch = topic_id, 0
    assert acquired(one.fetch(0)[0]) == [(0, 0, 1)]
    delete(client, topic)
    (part,) = one.fetch()
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID
