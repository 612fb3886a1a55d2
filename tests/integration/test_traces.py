"""One fetch and one produce, each a single trace over three hops, seen by a real OTLP receiver."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from tests.support.cluster import Cluster
from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.raw_client import RawClient

FETCH_CHAIN = [
    "gateway.kafka.connect",
    "gateway.kafka.request",
    "rafka.gateway.kafka.fetch",
    "mesh.kafkaop.sent",
    "mesh.kafkaop.handle",
    "rafka.broker.fetch.read",
]
PRODUCE_CHAIN = [
    "gateway.kafka.connect",
    "gateway.kafka.request",
    "rafka.gateway.kafka.produce",
    "mesh.kafkaop.sent",
    "mesh.kafkaop.handle",
    "broker.produce.store",
    "kafkaop.ack",
    "kafkaop.ack_received",
]


class Spans:
    """All spans received so far."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def named(self, name: str) -> list[Any]:
        return [span for span in self.all if span.name == name]

    def chain_to(self, last: Any) -> list[str]:
        """Names from the root of the trace down to `last`, following parents."""
        by_id = {span.span_id: span for span in self.all if span.trace_id == last.trace_id}
        names = [last.name]
        while last.parent_span_id:
            last = by_id[last.parent_span_id]
            names.append(last.name)
        return names[::-1]

    async def wait(self, name: str) -> Any:
        """The first span of that name; exporters send within a few seconds."""
        async with asyncio.timeout(20):
            while not self.named(name):
                await asyncio.sleep(0.05)
        return self.named(name)[0]


def attributes(span: Any) -> dict[str, Any]:
    values_of = ((a.key, a.value) for a in span.attributes)
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values_of}


@pytest.fixture
async def receiver() -> AsyncIterator[tuple[Spans, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = OtelTapHttpProtobufReceiverSettings(
        http_port=port,
        print_traces_as_ndjson=False,
        print_logs_as_ndjson=False,
        print_metrics_as_ndjson=False,
    )
    spans = Spans()
    async with OtelTapHttpProtobufReceiver(settings) as tap:

        async def collect() -> None:
            async for span in tap.stream_traces():
                spans.all.append(span)

        collector = asyncio.create_task(collect())
        yield spans, port
        collector.cancel()


def use(cluster: Cluster) -> None:
    """One topic, one produce, one fetch, on one connection."""
    with RawClient(cluster.address) as client:
        metadata(client, "traced")
        assert produce(client, "traced", b"a", b"b") == 0
        assert values(fetch(client, "traced", 0)) == [b"a", b"b"]


async def test_a_fetch_and_a_produce_are_each_one_trace(
    receiver: tuple[Spans, int], tmp_path: Path
) -> None:
    spans, port = receiver
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }

    def run() -> None:
        with Cluster(tmp_path, env=env) as cluster:
            use(cluster)

    await asyncio.to_thread(run)

    read = await spans.wait("rafka.broker.fetch.read")
    acked = await spans.wait("kafkaop.ack_received")
    for name in (*FETCH_CHAIN, *PRODUCE_CHAIN):
        await spans.wait(name)
    assert spans.chain_to(read) == FETCH_CHAIN
    assert spans.chain_to(acked) == PRODUCE_CHAIN
    assert len(spans.named("rafka.broker.fetch.read")) == 1

    seen = attributes(read)
    assert (seen["fetch_offset"], seen["returned_count"], seen["high_watermark"]) == (0, 2, 2)
    org, topic_hash, partition = seen["virtual_topic"].split("-")
    assert (org, partition) == ("1", "0")
    assert 0 <= int(topic_hash) < 2**128
    for request in spans.named("gateway.kafka.request"):
        assert attributes(request)["messaging.system"] == "kafka"
        assert request.start_time_unix_nano <= request.end_time_unix_nano


def test_a_dead_collector_harms_no_client_and_no_shutdown(tmp_path: Path) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with Cluster(tmp_path, env=env) as cluster:  # whose end asserts that both drain and exit 0
        use(cluster)


def test_without_an_endpoint_the_sdk_is_not_even_loaded(shared_cluster: Cluster) -> None:
    use(shared_cluster)
    for process in (shared_cluster.broker, shared_cluster.gateway):
        mapped = Path(f"/proc/{process.pid}/maps").read_text()
        assert "grpc" not in mapped
        assert "_upb" not in mapped  # protobuf's native part, which the exporter needs
