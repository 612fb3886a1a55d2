"""What needs attention in a cluster, for a user who may see it and for one who may not."""

from __future__ import annotations

import asyncio

from quafka_client.cluster import ClientCluster
from quafka_console.data.findings import Findings
from quafka_loop import clock
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.group_admin import ListedGroup, ListGroupsRequest, ListGroupsResponse
from quafka_proto.schema.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from quafka_proto.schema.quafka import (
    DescribedGroupLag,
    DescribeGatewayRequest,
    DescribeGatewayResponse,
    DescribeGroupLagRequest,
    DescribeGroupLagResponse,
    GatewayBroker,
    GroupLagPartition,
    GroupLagTopic,
)
from quafka_telemetry.version import version
from tests.unit.deploy.fake_kafka import HOST, Fake, serving

GATEWAY = DescribeGatewayRequest.api_key


def fake_cluster() -> Fake:
    """A gateway without its broker, a group that nobody reads for, and the state of two copies."""
    fake = Fake(
        {
            MetadataRequest.api_key: (12, 12),
            ListGroupsRequest.api_key: (4, 4),
            GATEWAY: (0, 7),
            DescribeGroupLagRequest.api_key: (0, 0),
        }
    )
    names = ("idle", "quafka-copy.t", "quafka-mirror.t")
    away = GatewayBroker(address="b:1", connected=False, away_ms=7_000)
    fake.answers = {
        GATEWAY: DescribeGatewayResponse(
            server_time_ms=clock.time_ns() // 1_000_000, version=version(), brokers=[away]
        ),
        ListGroupsRequest.api_key: ListGroupsResponse(
            groups=[ListedGroup(group_id=name) for name in names]
        ),
        DescribeGroupLagRequest.api_key: DescribeGroupLagResponse(
            groups=[
                DescribedGroupLag(
                    group_id=name,
                    group_state="Empty",
                    topics=[GroupLagTopic(name="t", partitions=[GroupLagPartition(lag=7)])],
                )
                for name in names
            ]
        ),
    }
    return fake


async def test_failures_come_first_and_one_reading_serves_all() -> None:
    fake, findings = fake_cluster(), Findings()
    async with serving(fake):
        broker = MetadataResponseBroker(node_id=0, host=HOST, port=fake.port)
        fake.answers[MetadataRequest.api_key] = MetadataResponse(brokers=[broker])
        async with ClientCluster([(HOST, fake.port)]) as cluster:
            found, again = await asyncio.gather(*(findings.read(cluster) for _ in range(2)))
    assert [(each.status, each.check) for each in found] == [("fail", "mesh"), ("warn", "groups")]
    assert "for 7 s" in found[0].message
    assert found[1].message == "1 group without members has records to read: idle (7)"
    assert all(each.fix for each in found)
    assert again == found
    assert [key for key, _ in fake.asked].count(GATEWAY) == 1


async def test_what_is_refused_is_no_failure() -> None:
    fake, findings = fake_cluster(), Findings()
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    fake.answers[GATEWAY] = DescribeGatewayResponse(error_code=refused)
    fake.answers[ListGroupsRequest.api_key] = ListGroupsResponse(error_code=refused)
    async with serving(fake):
        broker = MetadataResponseBroker(node_id=0, host=HOST, port=fake.port)
        fake.answers[MetadataRequest.api_key] = MetadataResponse(brokers=[broker])
        async with ClientCluster([(HOST, fake.port)]) as cluster:
            assert await findings.read(cluster) == []
