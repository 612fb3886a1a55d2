"""The metrics of a real gateway and broker, scraped as Prometheus does."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from quafka_gateway.api import APIS
from tests.support.cluster import Cluster
from tests.support.kafka_calls import commit, create_topic, fetch, metadata, produce, values
from tests.support.prometheus import OPEN, Scrape, get, lint, samples
from tests.support.raw_client import RawClient


def gateway(cluster: Cluster) -> str:
    return str(cluster.gateway.ready["operations"])


def broker(cluster: Cluster) -> str:
    return str(cluster.broker.ready["operations"])


@pytest.fixture(scope="module")
def used(shared_cluster: Cluster) -> Cluster:
    """It has seen a few requests: a fetch of nothing that waited, and one of what is not there."""
    with RawClient(shared_cluster.address) as client:
        metadata(client, "t")
        create_topic(client, "wide", partitions=3)
        produce(client, "t", b"a", b"b")
        assert values(fetch(client, "t", 0)) == [b"a", b"b"]
        assert values(fetch(client, "t", 2, max_wait_ms=2_000)) == []
        fetch(client, "t", 99)
    return shared_cluster


@pytest.mark.needs("promtool")
def test_both_pages_are_what_prometheus_reads(used: Cluster) -> None:
    for address in (gateway(used), broker(used)):
        for path in ("/metrics", "/metrics/detail"):
            status, kind, text = get(address, path)
            assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
            assert lint(text) == ""
            plain = samples(text).keys()
            _, kind, text = get(address, path, OPEN)
            assert kind.startswith("application/openmetrics-text")
            assert samples(text, openmetrics=True).keys() == plain


def test_requests_errors_and_latency_are_counted_by_api(used: Cluster) -> None:
    found = Scrape(gateway(used))
    for api in APIS.values():
        assert found("quafka_gateway_requests_total", api=api.name) >= 0
    assert found("quafka_gateway_requests_total", api="Produce") == 1
    assert found("quafka_gateway_requests_total", api="Fetch") == 3
    assert found("quafka_gateway_request_duration_seconds_count", api="Fetch") == 3
    errors = "quafka_gateway_request_errors_total"
    assert found(errors, api="Fetch", error="OFFSET_OUT_OF_RANGE", expected="false") == 1
    assert found.sum(errors) == 1


@pytest.mark.long
def test_the_time_for_which_a_fetch_is_parked_is_no_latency(used: Cluster) -> None:
    for found, took, parked, label in (
        (Scrape(gateway(used)), "quafka_gateway_request", "Fetch", "api"),
        (Scrape(broker(used)), "quafka_broker_op", "fetch", "op"),
    ):
        name = {label: parked}
        assert 1.9 < found(f"{took}_parked_seconds_total", **name) < 10
        # Together less than what one of them waited, or the wait would be in here.
        assert found(f"{took}_duration_seconds_sum", **name) < 1.9


def test_what_a_gateway_holds_is_there(used: Cluster) -> None:
    with RawClient(used.address) as client:
        before = Scrape(gateway(used))
        assert before("quafka_gateway_connections") == 1
        produce(client, "t", bytes(10_000))
        after = Scrape(gateway(used))
    assert after("quafka_gateway_received_bytes_total") > 10_000
    assert after("quafka_gateway_sent_bytes_total") > before("quafka_gateway_sent_bytes_total") > 0
    assert after("quafka_gateway_fetch_polls_total") >= 3
    assert after("quafka_gateway_request_memory_bytes") == 0
    assert after("process_resident_memory_bytes") > 10 << 20
    assert after("process_cpu_seconds_total") > 0.01
    assert after("process_open_fds") > 3


def test_every_counter_of_the_mesh_is_a_metric(used: Cluster) -> None:
    for address in (gateway(used), broker(used)):
        found = Scrape(address)
        peers = json.loads(get(address, "/mesh")[2])["peers"]
        assert peers
        for peer in peers:  # in a store, a gateway has a connection beside those of the shards
            labels = {"peer": peer["peer"][:16], "address": peer["address"]}
            counters = {**peer, **peer["transport"]}
            for name in counters.keys() - {"peer", "address", "refusal", "transport"}:
                base = re.sub("_us$", "_seconds", name)
                (match,) = {f"quafka_mesh_{base}", f"quafka_mesh_{base}_total"} & found.names
                assert found(match, **labels) >= 0
            assert found("quafka_mesh_connected", **labels) == 1
            assert 0 < found("quafka_mesh_rtt_seconds", **labels) < 5


def test_the_log_is_counted(used: Cluster) -> None:
    before = Scrape(broker(used))
    with RawClient(used.address) as client:
        produce(client, "t", bytes(5_000))
    after = Scrape(broker(used))
    assert after("quafka_wal_appends_total") > before("quafka_wal_appends_total")
    grown = after("quafka_wal_bytes") - before("quafka_wal_bytes")
    assert grown > 5_000
    fsyncs = "quafka_wal_fsync_duration_seconds_count"
    assert after(fsyncs) > before(fsyncs)
    assert after("quafka_wal_segments") == 1
    assert after("quafka_wal_quarantined") == after("quafka_wal_failed") == 0
    assert 0 < after("quafka_wal_disk_free_bytes") <= after("quafka_wal_disk_size_bytes")
    assert after("quafka_wal_unsaved_bytes") > 0  # a checkpoint may come in between
    assert after("quafka_broker_topics") == 2
    assert after("quafka_broker_partitions") == 4


def test_partitions_are_on_a_page_of_their_own(used: Cluster) -> None:
    assert not any(name.startswith("kafka_") for name in Scrape(broker(used)).names)
    with RawClient(used.address) as client:
        end = produce(client, "wide", b"x") + 1
    found = Scrape(broker(used), "/metrics/detail")
    assert found("kafka_topic_partitions", org="1", topic="wide") == 3
    current, oldest = "kafka_topic_partition_current_offset", "kafka_topic_partition_oldest_offset"
    assert found(current, org="1", topic="wide", partition="0") == end
    assert found(current, org="1", topic="wide", partition="2") == 0
    assert found(oldest, org="1", topic="wide", partition="0") == 0


def test_the_build_is_named(used: Cluster) -> None:
    version = subprocess.run(
        [sys.executable, "-m", "quafka", "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    python = sys.version.split()[0]
    for program, address in (("gateway", gateway(used)), ("broker", broker(used))):
        found = Scrape(address)
        info = found("quafka_build_info", program=program, version=version, python=python)
        assert info == 1


def test_lag_is_told_in_records_and_in_seconds(used: Cluster) -> None:
    with RawClient(used.address) as client:
        create_topic(client, "lagging", partitions=2)
        for value in (b"a", b"b", b"c"):
            produce(client, "lagging", value)
        commit(client, "some-group", "lagging", 1)
        commit(client, "some-group", "lagging", 0, partition=1)
    found = Scrape(broker(used), "/metrics/detail")
    group = {"org": "1", "consumergroup": "some-group"}
    behind = {**group, "topic": "lagging", "partition": "0"}
    done = {**group, "topic": "lagging", "partition": "1"}
    assert found("kafka_consumergroup_current_offset", **behind) == 1
    assert found("kafka_consumergroup_lag", **behind) == 2
    # Its records say that they are of 1970.
    assert found("kafka_consumergroup_lag_seconds", **behind) > 50 * 365 * 86_400
    assert found("kafka_consumergroup_lag", **done) == 0
    assert found("kafka_consumergroup_lag_seconds", **done) == 0
    assert found("kafka_consumergroup_catch_up_seconds", **done) == 0
    assert found("kafka_consumergroup_lag_sum", **group) == 2
    assert found("kafka_consumergroup_members", **group) == 0
