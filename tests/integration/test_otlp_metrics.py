"""Metrics pushed to a real OTLP receiver; and what it costs when there is none."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from quafka_telemetry.metrics import SECONDS, Metrics
from quafka_telemetry.otlp_metrics import push_from_environment
from tests.support.cluster import Cluster
from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.ports import lasting_port
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

CUMULATIVE = 2  # in opentelemetry.proto.metrics.v1


def use(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        metadata(client, "t")
        produce(client, "t", b"a")
        assert values(fetch(client, "t", 0)) == [b"a"]


def points(metric: Any) -> dict[str, Any]:
    """A metric's data points by the values of their labels."""
    data = getattr(metric, metric.WhichOneof("data"))
    return {
        ",".join(label.value.string_value for label in point.attributes): point
        for point in data.data_points
    }


async def test_the_same_numbers_reach_an_otlp_receiver(tmp_path: Path) -> None:
    port = lasting_port()
    settings = OtelTapHttpProtobufReceiverSettings(
        http_port=port,
        print_traces_as_ndjson=False,
        print_logs_as_ndjson=False,
        print_metrics_as_ndjson=False,
    )
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }
    pushed: dict[str, Any] = {}

    def run() -> None:
        with Cluster(tmp_path, env=env) as cluster:
            use(cluster)
            scrapes = [Scrape(p.ready["operations"]) for p in (cluster.gateway, cluster.broker)]
            # What is scraped is what is pushed, but for what only Prometheus' text has.
            expected = {
                re.sub("_(total|bucket|sum|count)$", "", n) for s in scrapes for n in s.names
            }
            give_up = time.monotonic() + 30
            while not expected <= pushed.keys():
                assert time.monotonic() < give_up, expected - pushed.keys()
                time.sleep(0.05)

    async with OtelTapHttpProtobufReceiver(settings) as tap:

        async def collect() -> None:
            async for metric in tap.stream_metrics():
                pushed[metric.name] = metric

        collector = asyncio.create_task(collect())
        await asyncio.to_thread(run)
        async with asyncio.timeout(10):
            while points(pushed["quafka_gateway_requests"])["Fetch"].as_int < 1:
                await asyncio.sleep(0.05)
        collector.cancel()

    requests = pushed["quafka_gateway_requests"]
    assert points(requests)["Produce"].as_int == 1
    assert requests.sum.is_monotonic
    assert requests.sum.aggregation_temporality == CUMULATIVE
    took = pushed["quafka_gateway_request_duration_seconds"]
    assert (took.unit, took.histogram.aggregation_temporality) == ("s", CUMULATIVE)
    point = points(took)["Fetch"]
    assert point.count == sum(point.bucket_counts) == 1
    assert tuple(point.explicit_bounds) == SECONDS
    assert 0 < point.sum < 10
    assert not point.HasField("min")
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    assert pushed["quafka_wal_appends"].sum.is_monotonic
    assert pushed["process_resident_memory_bytes"].unit == "By"


def test_a_collector_that_hangs_up_harms_nobody_and_is_told_of_once(tmp_path: Path) -> None:
    logs = [tmp_path / "gateway.log", tmp_path / "broker.log"]
    with socket.create_server(("127.0.0.1", 0)) as collector:
        collector.settimeout(10)
        env = {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{collector.getsockname()[1]}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "0.1",
            "OTEL_METRIC_EXPORT_INTERVAL": "50",
        }
        with Cluster(tmp_path, env=env) as cluster:  # whose end asserts that both drain and exit 0
            use(cluster)
            while not all("does not accept metrics" in log.read_text() for log in logs):
                collector.accept()[0].close()
            for _ in range(6):
                collector.accept()[0].close()
            collector.close()
    for log in logs:
        said = log.read_text()
        assert said.count("does not accept metrics") == 1
        assert said.count("Failed to export") == 1, said


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_METRICS_EXPORTER", "console"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
    ],
)
def test_a_variable_that_cannot_be_meant_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable}='{value}'"):
        push_from_environment("quafka", Metrics())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
    ],
)
def test_nothing_is_pushed_where_nothing_is_to_be(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv(variable, value)
    assert push_from_environment("quafka", Metrics()) is None
