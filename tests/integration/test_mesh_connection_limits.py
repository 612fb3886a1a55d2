"""The limit of mesh connections at a broker: many shards need one, and a refusal is reported."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from quafka_mesh_ops.shards import Hashed, shard_of
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.produce import ProduceResponse
from tests.support.command import Command
from tests.support.kafka_calls import VERSION, metadata, produce_request
from tests.support.prometheus import get
from tests.support.raw_client import RawClient
from tests.support.store_cluster import StoreCluster

pytestmark = pytest.mark.long

SHARDS = 12
LIMIT = ("--mesh-max-connections-per-node", "1")


def topic_at(shard: int) -> str:
    names = (f"name-{number}" for number in range(1_000))
    return next(name for name in names if shard_of(Hashed.TOPIC, 1, name, SHARDS) == shard)


def answers(cluster: StoreCluster, gateway: str) -> set[int]:
    """The error codes of a produce to each shard."""
    codes: set[int] = set()
    with RawClient(cluster.address(gateway)) as client:
        for shard in range(SHARDS):
            began = time.monotonic()
            topic = topic_at(shard)
            metadata(client, topic)
            request = produce_request(topic, b"v")
            produced = client.call(request, ProduceResponse, VERSION["produce"])
            codes.add(produced.responses[0].partition_responses[0].error_code)
            assert time.monotonic() - began < 5  # a call to a silent broker takes 10 s
    return codes


def test_all_shards_share_a_connection_and_a_gateway_that_gets_none_says_so(tmp_path: Path) -> None:
    with StoreCluster(
        tmp_path, brokers=("a",), gateways=("g",), shards=SHARDS, broker_args=LIMIT
    ) as cluster:
        assert answers(cluster, "g") == {0}
        figures = get(cluster.page("a"), "/metrics")[2]
        assert "quafka_mesh_connections 1" in figures
        assert 'quafka_mesh_refused_connections_total{limit="node"} 0' in figures

        # A process of the same node, as one of its `workers`.
        cluster.add_gateway("h")
        assert answers(cluster, "h") == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        ran = Command(cluster.bootstrap("h"))("doctor --format json", code=None)
        said = [each["message"] for each in ran.json["findings"] if each["status"] == "fail"]
        assert any("mesh.max.connections.per.node" in message for message in said), said
        assert "refused node" in cluster.brokers["a"].log.read_text()
        figures = get(cluster.page("a"), "/metrics")[2]
        assert 'quafka_mesh_refused_connections_total{limit="node"} 0' not in figures
        page = get(cluster.gateways["h"].ready["operations"], "/mesh")[2]
        assert "this node has 1" in page
        assert answers(cluster, "g") == {0}
