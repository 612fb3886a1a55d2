"""`python -m tests.bench traces`: what tracing costs, by how much of it there is.

Four pairs of gateway and broker side by side, each asked in turn: tracing off, on with nothing
sampled, with one request in a hundred, with all. CPU is that of both processes together
(/proc/PID/schedstat); the collector is a process of its own that takes everything unread. At the
end: memory with a collector that refuses, and the µs of the parts.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from quafka_gateway.handlers.client_context import context_of_produce
from quafka_proto.codec import encode
from quafka_telemetry import semconv
from quafka_telemetry.otlp import OtlpTracer, SpanQueue
from quafka_telemetry.sampling import EdgeSampling, Sampler
from quafka_telemetry.tracing import Tracer
from tests.bench.clients import consume_all, end_to_end, produce_all
from tests.bench.parked import cpu_seconds
from tests.bench.start import mib
from tests.support.cluster import Cluster
from tests.support.flights import Flight, flights
from tests.support.kafka_calls import fetch, metadata, produce, produce_request
from tests.support.raw_client import RawClient

RATIOS = {"off": None, "0 %": "0", "1 %": "0.01", "100 %": "1"}
REFUSED = "http://127.0.0.1:9"


class Cost(NamedTuple):
    """Of single small requests, one after the other."""

    cpu_us: float
    p50_ms: float
    p99_ms: float


def env_of(ratio: str | None, endpoint: str) -> dict[str, str]:
    """What a process is told."""
    if ratio is None:
        return {}
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": ratio,
    }


@contextmanager
def sink() -> Generator[str]:
    """A collector that takes everything, in a process of its own; its endpoint."""
    command = [sys.executable, "-m", "tests.bench.traces", "sink"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.communicate()


def run_sink() -> None:
    """That process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def cluster_of(stack: ExitStack, folder: Path, ratio: str | None, endpoint: str) -> Cluster:
    """A pair without a bound on spans, and without waiting for a disk."""
    folder.mkdir()
    env = env_of(ratio, endpoint)
    broker, gateway = ("--wal-fsync", "never"), ("--trace-spans-per-second", "0")
    return stack.enter_context(Cluster(folder, broker, gateway, env=env))


def calls(cluster: Cluster, call: Callable[[RawClient], object], count: int) -> Cost:
    """So many calls on one connection."""
    processes = cluster.gateway, cluster.broker
    took: list[float] = []
    with RawClient(cluster.address) as client:
        metadata(client, "small")
        call(client)
        before = sum(map(cpu_seconds, processes))
        for _ in range(count):
            began = time.perf_counter()
            call(client)
            took.append(time.perf_counter() - began)
        used = sum(map(cpu_seconds, processes)) - before
    p99 = statistics.quantiles(took, n=100)[98]
    return Cost(used / count * 1e6, statistics.median(took) * 1e3, p99 * 1e3)


def produce_one(client: RawClient) -> None:
    """One small record."""
    produce(client, "small", b"x" * 100)


def fetch_first(client: RawClient) -> None:
    """The first record, which is in the gateway's cache."""
    fetch(client, "small", 0, partition_max_bytes=1)


def requests(clusters: dict[str, Cluster], rounds: int, count: int) -> None:
    """Single calls."""
    for what, call in (("produce 100 bytes", produce_one), ("fetch what is cached", fetch_first)):
        costs: dict[str, list[Cost]] = {name: [] for name in clusters}
        for _ in range(rounds):
            for name, cluster in clusters.items():
                costs[name].append(calls(cluster, call, count))
        base = statistics.median(cost.cpu_us for cost in costs["off"])
        for name, found in costs.items():
            cpu, p50, p99 = (statistics.median(values) for values in zip(*found, strict=True))
            print(
                f"{what:22} {name:>6}: {cpu:7.0f} us of CPU a request ({cpu - base:+6.0f}), "
                f"p50 {p50:6.2f} ms, p99 {p99:6.2f} ms"
            )


def throughput(clusters: dict[str, Cluster], rows: list[Flight], rounds: int) -> None:
    """What librdkafka produces and consumes; ratios are those within a round."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in clusters}
    used: dict[str, list[float]] = {name: [] for name in clusters}
    for turn in range(rounds):
        for name, cluster in clusters.items():
            processes = cluster.gateway, cluster.broker
            before = sum(map(cpu_seconds, processes))
            produced = produce_all(cluster.bootstrap, f"flights-{turn}", rows)
            consumed = consume_all(cluster.bootstrap, f"flights-{turn}", len(rows))
            seconds[name].append((produced, consumed))
            used[name].append(sum(map(cpu_seconds, processes)) - before)
    for name, took in seconds.items():
        produced, consumed = (
            statistics.median(
                off[i] / own[i] for off, own in zip(seconds["off"], took, strict=True)
            )
            for i in (0, 1)
        )
        cpu = statistics.median(own / off for off, own in zip(used["off"], used[name], strict=True))
        print(
            f"{len(rows):,} flights        {name:>6}: throughput beside off: produce "
            f"{produced:.3f}, consume {consumed:.3f}; CPU of both {cpu:.3f}"
        )


def latency(clusters: dict[str, Cluster], seconds: float) -> None:
    """Produce to consume, at a steady rate."""
    for name, cluster in clusters.items():
        found = end_to_end(cluster.bootstrap, "latency", 500, seconds)
        print(
            f"produce to consume, 500/s {name:>6}: p50 {found.p50:6.2f} ms, p99 {found.p99:6.2f} ms"
        )


def dead_collector(folder: Path, count: int) -> None:
    """Memory, with everything sampled and nobody who takes it."""
    with ExitStack() as stack:
        cluster = cluster_of(stack, folder, "1", REFUSED)
        calls(cluster, produce_one, 500)
        grown: list[str] = []
        pids = cluster.gateway.pid, cluster.broker.pid
        before = sum(mib(pid, "Rss") for pid in pids)
        for _ in range(3):
            calls(cluster, produce_one, count)
            now = sum(mib(pid, "Rss") for pid in pids)
            grown.append(f"{now - before:+.1f}")
    print(
        f"dead collector, all sampled: {before:.1f} MiB in both after 500 requests; after "
        f"each further {count:,}: {', '.join(grown)} MiB"
    )


def parts() -> None:
    """What single steps cost on the event loop, in µs."""
    request = produce_request("small", b"x" * 100)
    frame = b"".join(encode(request, 9))
    full = SpanQueue(lambda spans: True, 1 << 20, 512, 3_600.0)
    none = OtlpTracer(Sampler(0.01, True, EdgeSampling(spans_per_second=1_000)), full)
    everything = OtlpTracer(Sampler(1.0, True, EdgeSampling()), full)
    parent = everything.root(semconv.CONNECT, 1).context
    about = {f"attribute.{n}": n for n in range(8)}

    def span() -> None:
        with everything.start(semconv.REQUEST, parent, about):
            pass

    steps: dict[str, Callable[[], object]] = {
        "off: decide": lambda: Tracer().root(semconv.CONNECT, 1),
        "1 %: decide": lambda: none.root(semconv.CONNECT, 1),
        "look for a client's context": lambda: context_of_produce(request, frame),
        "unsampled: a later hop": lambda: none.start(semconv.REQUEST, None),
        "sampled: a span with 8 attributes": span,
    }
    for name, step in steps.items():
        took = min(timeit.repeat(step, number=20_000, repeat=3)) / 20_000 * 1e6
        print(f"{name:35} {took:6.2f} us")
    full.close(1.0)


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench traces", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2_000, help="of a kind, in each round")
    parser.add_argument("--rows", type=int, default=336_776, help="flights, in each round")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each latency run")
    options = parser.parse_args(arguments)
    parts()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        endpoint = stack.enter_context(sink())
        clusters = {
            name: cluster_of(stack, Path(scratch) / str(number), ratio, endpoint)
            for number, (name, ratio) in enumerate(RATIOS.items())
        }
        requests(clusters, options.rounds, options.requests)
        throughput(clusters, list(flights())[: options.rows], options.rounds)
        latency(clusters, options.seconds)
    with tempfile.TemporaryDirectory() as scratch:
        dead_collector(Path(scratch) / "dead", options.requests)


if __name__ == "__main__":
    run_sink()
