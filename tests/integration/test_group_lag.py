"""Our own API for lag, through the port of all clients, who are not told of it."""

from __future__ import annotations

import time

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.quafka import (
    CLIENT_SOFTWARE,
    DescribeGroupLagRequest,
    DescribeGroupLagResponse,
)
from tests.support.kafka_calls import commit, produce
from tests.support.raw_client import RawClient

KEY = DescribeGroupLagRequest.api_key


def lag(client: RawClient, *groups: str) -> DescribeGroupLagResponse:
    request = DescribeGroupLagRequest(groups=list(groups))
    return client.call(request, DescribeGroupLagResponse, 0)


@pytest.mark.parametrize(
    ("software", "listed"),
    [(CLIENT_SOFTWARE, True), ("librdkafka", False), ("apache-kafka-java", False), ("", False)],
)
def test_only_our_own_tools_are_told_of_it(client: RawClient, software: str, listed: bool) -> None:
    request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
    answer = client.call(request, ApiVersionsResponse, 3)
    assert (KEY in {each.api_key for each in answer.api_keys}) is listed
    old = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert KEY not in {each.api_key for each in old.api_keys}


def test_the_lag_of_several_groups(client: RawClient, topic: str) -> None:
    produce(client, topic, b"0", b"1", b"2")  # stamped a second after 1970
    commit(client, "behind", topic, 1)
    commit(client, "done", topic, 3)
    answer = lag(client, "behind", "nobody", "done")
    assert abs(answer.server_time_ms - time.time() * 1_000) < 60_000
    assert [(group.group_id, group.error_code) for group in answer.groups] == [
        ("behind", 0), ("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("done", 0),
    ]  # fmt: skip
    behind, _, done = answer.groups
    ((partition,),) = (each.partitions for each in behind.topics)
    assert (partition.log_start_offset, partition.high_watermark) == (0, 3)
    assert (partition.committed_offset, partition.lag) == (1, 2)
    assert abs(partition.behind_ms - (answer.server_time_ms - 1_001)) < 60_000
    assert (partition.catch_up_ms, partition.member_id) == (-1, None)
    ((partition,),) = (each.partitions for each in done.topics)
    assert (partition.lag, partition.behind_ms, partition.catch_up_ms) == (0, 0, 0)


@pytest.mark.parametrize("key", [4, KEY - 1, 30_000])
def test_other_keys_still_cost_their_connection(client: RawClient, key: int) -> None:
    frame = key.to_bytes(2, "big") + bytes(2) + b"\0\0\0\7\xff\xff\0"
    client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    assert client.closed_by_peer()


def test_an_unknown_version_of_it_does_too(client: RawClient) -> None:
    frame = KEY.to_bytes(2, "big") + b"\0\1" + b"\0\0\0\7\xff\xff\0\1\0"
    client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    assert client.closed_by_peer()
