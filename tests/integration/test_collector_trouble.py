"""Collectors that refuse, swallow, fail or dawdle: no client notices, memory stays bounded, and
what was lost is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from quafka_telemetry import semconv
from quafka_telemetry.sampling import EdgeSampling, Sampler
from quafka_telemetry.span_metrics import span_families
from quafka_telemetry.tracer_setup import otlp_tracer
from quafka_telemetry.tracing import Tracer
from tests.support.cluster import Cluster
from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long


class Mood(Enum):
    """How a collector is."""

    WELL = "takes everything"
    UNAVAILABLE = "answers 503, which exporters are to try again"
    SLOW = "takes everything, a quarter of a second later"
    SILENT = "reads, and never answers"
    GONE = "refuses connections"


class Collector:
    """A collector whose mood may change, on a real socket."""

    def __init__(self) -> None:
        self.mood = Mood.WELL
        over = self._over = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if collector.mood is Mood.SILENT:
                    over.wait()
                elif collector.mood is Mood.SLOW:
                    over.wait(0.25)
                self.send_response(503 if collector.mood is Mood.UNAVAILABLE else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def leave(self) -> None:
        """Be gone. A second time it does nothing."""
        self.mood = Mood.GONE
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def collector() -> Generator[Collector]:
    """One that is well, at first."""
    found = Collector()
    try:
        yield found
    finally:
        found.leave()


def bounded_tracer(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> Tracer:
    """One that begins a trace for all that it is asked, and gives up soon."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    env = {"OTEL_BSP_MAX_QUEUE_SIZE": "200", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100"}
    return otlp_tracer("test", env, Sampler(1.0, True, EdgeSampling()))


@pytest.mark.parametrize("mood", [Mood.UNAVAILABLE, Mood.SLOW, Mood.SILENT, Mood.GONE])
def test_spans_are_dropped_and_counted_and_nobody_waits(
    mood: Mood, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as trouble:
        trouble.mood = mood
        if mood is Mood.GONE:
            trouble.leave()
        tracer = bounded_tracer(monkeypatch, trouble.endpoint)
        slow, most = 0, 0
        for _ in range(2_000):
            began = time.perf_counter()
            tracer.root(semconv.CONNECT, 1).end()
            slow += time.perf_counter() - began > 0.1
            most = max(most, tracer.queued)
        tracer.shutdown()
    assert tracer.started == 2_000
    assert most <= 200
    assert slow < 10  # they do not wait for the collector; other tests may stop one of them
    assert tracer.queued == 0
    counted = [value for one in span_families(tracer) for _, value in one.samples]
    assert counted == [2_000, tracer.dropped, 0]
    if mood is Mood.SLOW:
        assert 0 < tracer.dropped < 2_000
    else:
        assert tracer.dropped == 2_000


def test_one_that_is_well_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as well:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", well.endpoint)
        tracer = otlp_tracer("test", {}, Sampler(1.0, True, EdgeSampling()))
        for _ in range(1_000):
            tracer.root(semconv.CONNECT, 1).end()
        tracer.shutdown()
    assert (tracer.started, tracer.dropped) == (1_000, 0)


def test_clients_do_not_notice(tmp_path: Path) -> None:
    with collector() as trouble:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": trouble.endpoint,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5",
            "OTEL_BSP_SCHEDULE_DELAY": "20",
        }
        # The end of the context asserts that both processes drain and exit 0.
        with Cluster(tmp_path, env=env) as cluster, RawClient(cluster.address) as client:
            metadata(client, "unseen")
            for turn, mood in enumerate(Mood):
                trouble.mood = mood
                if mood is Mood.GONE:
                    trouble.leave()
                first = 10 * turn
                for number in range(first, first + 10):
                    assert produce(client, "unseen", b"%d" % number) == number
                assert len(values(fetch(client, "unseen", first))) == 10
