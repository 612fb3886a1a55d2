"""Our own API that says how a gateway and its brokers are."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path

import pytest

from quafka_mesh_ops.settings import join_address
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.quafka import (
    DescribeGatewayRequest,
    DescribeGatewayResponse,
    DescribeGroupLagRequest,
    DescribeGroupLagResponse,
)
from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.raw_client import RawClient


def describe(client: RawClient) -> DescribeGatewayResponse:
    return client.call(DescribeGatewayRequest(), DescribeGatewayResponse, 0)


def test_a_gateway_and_its_broker_are_told_of(
    shared_cluster: Cluster, client: RawClient, topic: str
) -> None:
    assert topic, "made by the broker, so it is connected"
    answer = describe(client)
    now_ms = time.time() * 1_000
    assert answer.version == version("quafka")
    assert abs(answer.server_time_ms - now_ms) < 60_000
    (broker,) = answer.brokers
    assert broker.address == join_address(*shared_cluster.mesh_address)
    assert (broker.connected, broker.answered, broker.away_ms) == (True, True, 0)
    assert (broker.version, broker.problem) == (version("quafka"), "")
    assert abs(broker.time_ms - now_ms) < 60_000
    assert broker.op_us > 0
    assert broker.rtt_us > 0
    assert broker.datagram_bytes >= 1_200
    assert broker.packets_sent > 0


@pytest.mark.long
def test_without_its_broker_a_gateway_says_so_soon(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, RawClient(cluster.address) as client:
        cluster.broker.stop()
        (broker,) = describe(client).brokers
        assert (broker.connected, broker.answered, broker.time_ms) == (False, False, -1)
        assert (broker.rtt_us, broker.datagram_bytes) == (-1, -1)
        request = DescribeGroupLagRequest(groups=["g"])
        (group,) = client.call(request, DescribeGroupLagResponse, 0).groups
        assert (group.group_id, group.error_code) == ("g", ErrorCode.NOT_COORDINATOR)

        ran = Command(cluster.bootstrap, timeout=2.0)("doctor --format json", code=None)
        failed = [each for each in ran.json["findings"] if each["status"] == "fail"]
        assert [each["check"] for each in failed] == ["mesh", "cluster"]
        assert "has had no connection to the broker at" in failed[0]["message"]
        assert "mesh.allow" in failed[0]["fix"]
        assert (
            failed[1]["fix"]
            == "repair the mesh first (see above): topics are known only to brokers"
        )
        assert ran.code == 1
