"""Quotas as real clients see them: Kafka's tool sets them, librdkafka and the Java client wait."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.support.cluster import Cluster
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import Run, run_tools, tool
from tests.support.kafka_calls import create_topic
from tests.support.quota_calls import alter, clear, describe
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

CONFIGS = "ConfigCommand"
RATE = 100_000
BYTES = 400_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    args = ("--quota-window-num", "2")
    with Cluster(tmp_path_factory.mktemp("quotas"), gateway_args=args) as cluster:
        with RawClient(cluster.address) as client:
            create_topic(client, "t")
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(cluster.address, 30) as client:
        yield client
        clear(client)


def test_librdkafka_reports_the_throttling_and_loses_nothing(
    cluster: Cluster, admin: RawClient
) -> None:
    assert alter(admin, {"client-id": "greedy"}, producer_byte_rate=RATE) == (0, None)
    throttles: list[int] = []

    def statistics(text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        throttles.extend(broker["throttle"]["max"] for broker in brokers)

    settings = {
        "bootstrap.servers": cluster.bootstrap, "client.id": "greedy", "linger.ms": 5,
        "batch.size": 20_000, "statistics.interval.ms": 200, "stats_cb": statistics,
    }  # fmt: skip
    failed: list[object] = []
    producer = Producer(settings)
    began = time.monotonic()
    for count in (BYTES // 1_000, 1):  # those in flight together are throttled together
        for _ in range(count):
            producer.produce("t", bytes(1_000), on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(30) == 0
    took = time.monotonic() - began
    producer.poll(0.5)
    assert failed == [None] * (BYTES // 1_000 + 1)
    assert max(throttles) > 100  # milliseconds
    assert took > BYTES / RATE - 3  # the window allows two seconds' worth at once


def _tools(cluster: Cluster) -> dict[str, Run]:
    at = ["--bootstrap-server", cluster.bootstrap]
    alice = [*at, "--entity-type", "users", "--entity-name", "alice"]
    both = [*alice, "--entity-type", "clients", "--entity-name", "app"]
    anybody = [*at, "--entity-type", "users", "--entity-default"]
    address = [*at, "--entity-type", "ips", "--entity-name", "192.0.2.7"]
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5"
    perf = ["--topic", "t", "--num-records", "30", "--record-size", "10000", "--throughput", "-1"]
    props = [f"bootstrap.servers={cluster.bootstrap}", "client.id=perf", "batch.size=20000"]
    return {
        "alice": tool(CONFIGS, *alice, "--alter", "--add-config", rates),
        "both": tool(CONFIGS, *both, "--alter", "--add-config", "controller_mutation_rate=3"),
        "anybody": tool(CONFIGS, *anybody, "--alter", "--add-config", "producer_byte_rate=9999"),
        "address": tool(CONFIGS, *address, "--alter", "--add-config", "connection_creation_rate=5"),
        "wrong": tool(CONFIGS, *alice, "--alter", "--add-config", "producer_byte_rate=-4"),
        "described": tool(CONFIGS, *alice, "--describe"),
        "described all": tool(CONFIGS, *at, "--entity-type", "users", "--describe"),
        "described ips": tool(CONFIGS, *at, "--entity-type", "ips", "--describe"),
        "removed": tool(CONFIGS, *anybody, "--alter", "--delete-config", "producer_byte_rate"),
        "perf": tool("ProducerPerformance", *perf, "--producer-props", *props, "--print-metrics"),
    }


@JAVA_TOOLS
def test_kafkas_tools_set_and_show_quotas_and_its_producer_waits(
    cluster: Cluster, admin: RawClient
) -> None:
    assert alter(admin, {"client-id": "perf"}, producer_byte_rate=RATE) == (0, None)
    found = run_tools(_tools(cluster))
    for name, outcome in found.items():
        assert (outcome.exit != 0) == (name == "wrong"), (name, outcome.output)
    described = found["described"].output
    for each in ("producer_byte_rate=1024", "consumer_byte_rate=2048", "request_percentage=12.5"):
        assert each in described
    assert "controller_mutation_rate" not in described
    assert "default user-principal" in found["described all"].output
    assert "connection_creation_rate=5" in found["described ips"].output
    assert "must be greater than 0" in found["wrong"].output
    left = describe(admin)
    assert left[("client-id", "app"), ("user", "alice")] == {"controller_mutation_rate": 3.0}
    assert (("user", None),) not in left
    throttle = re.search(r"produce-throttle-time-max\S*\s+: ([0-9.]+)", found["perf"].output)
    assert throttle is not None, found["perf"].output
    assert float(throttle[1]) > 100
