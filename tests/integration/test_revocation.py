"""`quafka node revoke` while clients are at work: they see errors they retry, never a hang."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from quafka.cli import main
from quafka_mesh_ops.identity import Identity
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.produce import ProduceResponse
from tests.integration.test_health import becomes
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.kafka_calls import VERSION, fetch_request, metadata, produce, produce_request
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

NOT_LEADER_OR_FOLLOWER = 6


def test_a_revoked_gateway_serves_again_once_it_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "allowed"
    gateway = Identity.load_or_create(tmp_path / "gateway.key").node_id
    assert main(["node", "allow", gateway, "--file", str(file)]) == 0
    with Cluster(tmp_path, ("--mesh-allow", "", "--mesh-allowed-file", str(file))) as cluster:
        becomes(cluster.gateway, set())
        with RawClient(cluster.address) as client:
            metadata(client, "t")
            assert produce(client, "t", b"first") == 0
            client.send(fetch_request("t", 1, max_wait_ms=20_000), VERSION["fetch"])
            assert main(["node", "revoke", gateway, "--file", str(file)]) == 0
            _, parked = client.receive(FetchResponse, VERSION["fetch"])
            code = parked.responses[0].partitions[0].error_code
            assert code == NOT_LEADER_OR_FOLLOWER
            becomes(cluster.gateway, {"broker"})
        with RawClient(cluster.address) as client:
            request = produce_request("t", b"refused")
            request.timeout_ms = 1_000
            answer = client.call(request, ProduceResponse, VERSION["produce"])
            code = answer.responses[0].partition_responses[0].error_code
            assert code == NOT_LEADER_OR_FOLLOWER
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        producer.produce("t", b"second")
        time.sleep(0.5)
        assert main(["node", "allow", gateway, "--file", str(file)]) == 0
        assert producer.flush(20) == 0
        becomes(cluster.gateway, set())
        found = [message.value() for message in consume(cluster.bootstrap, "t", 2)]
        assert found == [b"first", b"second"]
        assert "it was taken off the allow-list" in cluster.logs
