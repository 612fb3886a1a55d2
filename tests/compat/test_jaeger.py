"""The product's traces in a real Jaeger, asked for through its API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.jaeger import jaeger, jaeger_binary
from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.machine import unable
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

_READ_SPANS = 11


def test_jaeger_holds_a_whole_trace_and_knows_what_calls_what(tmp_path: Path) -> None:
    binary = jaeger_binary()
    if binary is None:
        unable("run Jaeger: there is none on the PATH, nor does JAEGER_BINARY name one")
    with jaeger(binary, tmp_path) as tracing:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": tracing.otlp, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        with Cluster(tmp_path, env=env) as cluster, RawClient(cluster.address) as client:
            metadata(client, "seen")
            produce(client, "seen", b"a")
            assert values(fetch(client, "seen", 0)) == [b"a"]
        operation, tags = "gateway.kafka.request", {"messaging.operation.name": "Fetch"}
        trace = tracing.trace("quafka-gateway", operation, tags, _READ_SPANS)
        assert set(tracing.get("/api/services")) >= {"quafka-gateway", "quafka-broker"}
    by_id = {span["spanID"]: span for span in trace["spans"]}
    services = {key: process["serviceName"] for key, process in trace["processes"].items()}
    (read,) = [s for s in trace["spans"] if s["operationName"] == "rafka.broker.fetch.read"]
    assert services[read["processID"]] == "quafka-broker"
    assert not any(span.get("warnings") for span in trace["spans"])  # it misses no parent
    chain: list[str] = []
    span = read
    while True:
        chain.append(span["operationName"])
        parents = [r["spanID"] for r in span["references"] if r["refType"] == "CHILD_OF"]
        if not parents:
            break
        span = by_id[parents[0]]
    assert chain[::-1] == [
        "gateway.kafka.connect",
        "gateway.kafka.request",
        "rafka.gateway.kafka.fetch",
        "mesh.kafkaop.sent",
        "mesh.kafkaop.handle",
        "rafka.broker.fetch.read",
    ]
    links = [r for r in read["references"] if r["refType"] == "FOLLOWS_FROM"]
    assert len(links) == 1
    assert links[0]["traceID"] != trace["traceID"]
