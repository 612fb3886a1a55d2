"""A gateway whose broker accepts fewer mesh connections than it needs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from quafka_mesh_ops.shards import Hashed, shard_of
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quafka_proto.schema.produce import ProduceResponse
from tests.support.command import Command
from tests.support.kafka_calls import VERSION, metadata, produce_request
from tests.support.prometheus import get
from tests.support.raw_client import RawClient
from tests.support.store_cluster import StoreCluster

pytestmark = pytest.mark.long

SHARDS, MOST = 6, 4
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def name_at(what: Hashed, shard: int) -> str:
    names = (f"name-{number}" for number in range(1_000))
    return next(name for name in names if shard_of(what, 1, name, SHARDS) == shard)


def test_shards_that_cannot_be_reached_answer_at_once_and_are_reported(tmp_path: Path) -> None:
    limit = ("--mesh-max-connections-per-node", str(MOST))
    with StoreCluster(tmp_path, brokers=("a",), shards=SHARDS, broker_args=limit) as cluster:
        with RawClient(cluster.address()) as client:
            codes: list[int] = []
            for shard in range(SHARDS):
                topic = name_at(Hashed.TOPIC, shard)
                began = time.monotonic()
                metadata(client, topic)
                answer = client.call(
                    produce_request(topic, b"v"), ProduceResponse, VERSION["produce"]
                )
                assert time.monotonic() - began < 5  # a call to a silent broker takes 10 s
                codes.append(answer.responses[0].partition_responses[0].error_code)
                group = FindCoordinatorRequest(
                    key=name_at(Hashed.GROUP, shard), coordinator_keys=[]
                )
                found = client.call(group, FindCoordinatorResponse, 1)
                assert found.error_code in (0, *RETRIABLE)
        assert 1 <= codes.count(0) <= MOST, codes
        assert set(codes) - {0} <= RETRIABLE
        ran = Command(cluster.bootstrap())("doctor --format json", code=None)
        said = [each for each in ran.json["findings"] if each["status"] == "fail"]
        assert any("mesh.max.connections.per.node" in each["message"] for each in said), said
        figures = get(cluster.page("a"), "/metrics")[2]
        assert f"quafka_mesh_connections {MOST}" in figures
        assert 'quafka_mesh_refused_connections_total{limit="total"} 0' in figures
        assert "refused node" in cluster.brokers["a"].log.read_text()
        page = get(cluster.gateways["g"].ready["operations"], "/mesh")[2]
        assert f"this node has {MOST}" in page
