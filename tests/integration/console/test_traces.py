"""Traces that a gateway and a broker export to the console, and exports of others."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.driver import Driver
from tests.support.kafka_calls import create_topic, fetch, produce, values
from tests.support.raw_client import RawClient


def test_a_produce_is_followed_from_the_client_to_the_disk(
    driver: Driver, console: str, tmp_path: Path
) -> None:
    exports = {"OTEL_EXPORTER_OTLP_ENDPOINT": console, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with Cluster(tmp_path, env=exports) as cluster, RawClient(cluster.address) as client:
        create_topic(client, "followed")
        produce(client, "followed", b"1")
    driver.open("/traces?search=followed", "Produce")
    driver.click("Produce")
    for text in ("gateway.kafka.request", "broker.wal.fsync", "waited", "followed"):
        driver.see(text)
    driver.press("broker.wal.fsync")
    driver.see("quafka-broker, ")


def test_a_record_is_followed_to_its_consumer_and_back(
    driver: Driver, console: str, shared_cluster: Cluster, tmp_path: Path
) -> None:
    with RawClient(shared_cluster.address) as client:  # the messages that the console shows
        create_topic(client, "travels")
        produce(client, "travels", b"first", b"second")
    exports = {"OTEL_EXPORTER_OTLP_ENDPOINT": console, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with Cluster(tmp_path, env=exports) as cluster, RawClient(cluster.address) as client:
        create_topic(client, "travels")
        produce(client, "travels", b"1", b"2")
        assert values(fetch(client, "travels", 0)) == [b"1", b"2"]
    driver.open("/record?topic=travels&partition=0&offset=1", "travels, partition 0, offset 1")
    for text in ("durable and answered after", "the producer's answer", "broker.wal.fsync"):
        driver.see(text)
    driver.open("/traces?topic=travels&api=Fetch", "Fetch")
    driver.click("Fetch")
    driver.see("Linked from this trace")
    driver.click("path of the first")
    driver.see("travels, partition 0, offset 0")
    driver.open("/messages?topic=travels&from=offset&at=1", "1 records")
    driver.pick("second")
    driver.click("Path")
    driver.see("travels, partition 0, offset 1")
    driver.open("/record?topic=travels&partition=0&offset=2", "No trace of this record is here")


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [(b"\xff\xff", "", 400), (b"zzz", "gzip", 400), (bytes(5 << 20), "", 413)],
)
def test_bad_exports_are_refused(console: str, body: bytes, encoding: str, status: int) -> None:
    metrics = urllib.request.Request(f"{console}v1/metrics", body[:10])
    with urllib.request.urlopen(metrics, timeout=30) as answer:
        assert answer.status == 200, "they are ignored"
    request = urllib.request.Request(f"{console}v1/traces", body, {"content-encoding": encoding})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == status
    refused.value.close()
