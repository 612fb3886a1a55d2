"""Reading, beside Apache Kafka and tansu: the same clients, the same bytes, one after the other.

Hot: one topic that fits every cache, read again and again by 1 and by 8 consumers. Catch-up: a
topic that nobody has read yet, by one. Each by librdkafka, and by a plain socket that looks at
nothing but batch headers, to see what lies above librdkafka's own limit. The records are 1 KB, in
batches of about 1 MB. CPU is what the server's processes used.

Quafka's answers cross two processes and an encrypted connection; Kafka's are plain, from one.
So there is a catch-up from Kafka over TLS, too, beside the same of Quafka.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from quafka_proto.headers import encode_request
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.bench.clients import end_to_end
from tests.bench.consumer import Process, read_together
from tests.bench.peers import Server, UnavailableError, kafka, quafka, tansu
from tests.support.raw_client import RawClient

RECORD = 1_000
HOT_MB, COLD_MB, BACKFILL_MB = 100, 250, 400
PASSES = 3
PARKED = 1_000
PARTITIONS, POLLS = 1_000, 200
VERSION = 12
KINDS = ("librdkafka", "raw")
ENCRYPTED = ("quafka", "kafka")
"""Whose catch-up is measured with all that leaves the machine encrypted."""

Figures = dict[str, list[float]]


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench kafka", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a latency run")
    parser.add_argument("--only", default="", help="tables whose name contains this")
    parser.add_argument("--servers", default="quafka,kafka,tansu")
    parser.add_argument("--workers", type=int, default=1, help="of Quafka's gateway")
    options = parser.parse_args(arguments)
    workers = ("--workers", str(options.workers)) if options.workers > 1 else ()
    starters = {
        "quafka": lambda folder: quafka(folder, workers),
        "kafka": kafka,
        "tansu": tansu,
    }
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        servers: list[Server] = []
        for name in options.servers.split(","):
            try:
                servers.append(stack.enter_context(starters[name](Path(scratch) / name)))
            except UnavailableError as e:
                print(f"without {name}: {e}")
        for name, measure in TABLES.items():
            if options.only in name:
                measure(servers, options)


def throughput(servers: list[Server], options: argparse.Namespace) -> None:
    """MB/s of what consumers get, and the server's CPU seconds for a GB of it."""
    rates: dict[str, Figures] = {}
    for server in servers:
        produce(server, "hot", HOT_MB)
        read_together("raw", server.bootstrap, "hot", HOT_MB * 1_000, 1, 1)
    for turn in range(options.rounds):
        for server in servers:
            for kind in KINDS:
                produce(server, f"cold-{kind}-{turn}", COLD_MB)
                if server.name in ENCRYPTED:
                    produce(server, f"encrypted-{kind}-{turn}", COLD_MB)
        for kind in KINDS:
            _round(servers, rates, kind, turn)
    print(f"\n{'MB/s and CPU s per GB':30}" + "".join(f"{s.name:>18}" for s in servers))
    for label, row in rates.items():
        cells = [
            f"{statistics.median(row[s.name]):8.0f} {statistics.median(row[s.name + ' cpu']):6.2f}"
            if s.name in row
            else ""
            for s in servers
        ]
        print(f"{label:30}" + "".join(f"{cell:>18}" for cell in cells) + _ratio(row, servers))


def _round(servers: list[Server], rates: dict[str, Figures], kind: str, turn: int) -> None:
    for consumers in (1, 8):
        for server in servers:
            row = rates.setdefault(f"hot, {consumers} x {kind}", {})
            _read(server, row, kind, "hot", HOT_MB, PASSES if consumers == 1 else 1, consumers)
    for server in servers:
        row = rates.setdefault(f"catch-up, 1 x {kind}", {})
        _read(server, row, kind, f"cold-{kind}-{turn}", COLD_MB, 1, 1)
    for server in servers:
        if server.name in ENCRYPTED:
            row = rates.setdefault(f"encrypted, 1 x {kind}", {})
            _read(server, row, kind, f"encrypted-{kind}-{turn}", COLD_MB, 1, 1, tls=True)


def _read(
    server: Server,
    row: Figures,
    kind: str,
    topic: str,
    mb: int,
    passes: int,
    consumers: int,
    *,
    tls: bool = False,
) -> None:
    before = server.cpu_seconds()
    where = server.encrypted if tls and server.encrypted else server.bootstrap
    seconds = read_together(kind, where, topic, mb * 1_000, passes, consumers)
    read = mb * passes * consumers
    row.setdefault(server.name, []).append(read / seconds)
    row.setdefault(f"{server.name} cpu", []).append((server.cpu_seconds() - before) / read * 1e3)


def _ratio(row: Figures, servers: list[Server]) -> str:
    if {"quafka", "kafka"} - {server.name for server in servers}:
        return ""
    return f"   {statistics.median(row['quafka']) / statistics.median(row['kafka']):5.2f} of kafka"


def latency(servers: list[Server], options: argparse.Namespace) -> None:
    """From produce() to the consumer's poll at 1,000 messages a second."""
    print(f"\n{'produce to consume':24}{'p50 ms':>10}{'p99 ms':>10}   beside a catch-up")
    for server in servers:
        produce(server, "backfill", BACKFILL_MB)
    for server in servers:
        records = BACKFILL_MB * 1_000
        backfill = Process("raw", server.bootstrap, "backfill", records, 0)
        try:
            alone = end_to_end(server.bootstrap, "alone", 1_000, options.seconds)
            backfill.go()
            beside = end_to_end(server.bootstrap, "beside", 1_000, options.seconds)
        except RuntimeError as e:
            print(f"{server.name:24}not measured: {e}")
            continue
        finally:
            backfill.stop()
        print(
            f"{server.name:24}{alone.p50:10.2f}{alone.p99:10.2f}"
            f"{beside.p50:10.2f}{beside.p99:10.2f}"
        )


def idle(servers: list[Server], options: argparse.Namespace) -> None:
    """What consumers at the tail cost that get nothing."""
    print(f"\n{PARKED} consumers parked at one tail, max wait 500 ms: the server's CPU")
    for server in servers:
        produce(server, "tail", 1)
        share, polls = _idle_share(server, options.seconds)
        print(f"{server.name:24}{share:8.1%} of a core, {polls:,.0f} polls/s")


def _idle_share(server: Server, seconds: float) -> tuple[float, float]:
    part = FetchPartition(partition=0, fetch_offset=1_000, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="tail", partitions=[part])],
    )
    frame = b"".join(encode_request(1, "idle", request, VERSION))
    sockets = [socket.create_connection(server.address) for _ in range(PARKED)]
    poller = select.epoll()
    by_fd = {sock.fileno(): sock for sock in sockets}
    answered = 0

    def turn(until: float) -> None:
        nonlocal answered
        while time.monotonic() < until:
            for fd, _ in poller.poll(0.1):
                by_fd[fd].recv(1 << 16)
                by_fd[fd].sendall(frame)
                answered += 1

    try:
        for sock in sockets:
            poller.register(sock.fileno(), select.EPOLLIN)
            sock.sendall(frame)
        turn(time.monotonic() + 2)
        answered, before, began = 0, server.cpu_seconds(), time.monotonic()
        turn(began + seconds)
        took = time.monotonic() - began
        return (server.cpu_seconds() - before) / took, answered / took
    finally:
        for sock in sockets:
            sock.close()


def sessions(servers: list[Server], options: argparse.Namespace) -> None:
    """An idle poll of a fetch session with a thousand partitions."""
    print(f"\nidle poll of a session of {PARTITIONS} partitions")
    for server in servers:
        try:
            cpu, took, up, down = _session_polls(server)
        except (OSError, RuntimeError, ValueError) as e:
            print(f"{server.name:24}not measured: {e}")
            continue
        print(
            f"{server.name:24}{cpu * 1e6:8.0f} us CPU, {took * 1e6:8.0f} us, "
            f"{up} bytes up, {down} bytes down"
        )


def _session_polls(server: Server) -> tuple[float, float, int, int]:
    with RawClient(server.address, timeout=30) as client:
        topic = CreatableTopic(name="wide", num_partitions=PARTITIONS, replication_factor=1)
        create = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        client.call(create, CreateTopicsResponse, 5)
        _until_led(client)
        everything = [
            FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
            for number in range(PARTITIONS)
        ]
        full = FetchRequest(
            max_bytes=1 << 20, session_epoch=0,
            topics=[FetchTopic(topic="wide", partitions=everything)],
        )  # fmt: skip
        opened = client.call(full, FetchResponse, VERSION)
        if not opened.session_id:
            raise RuntimeError("it keeps no fetch sessions")
        frames = [
            b"".join(
                encode_request(
                    1,
                    "idle",
                    FetchRequest(
                        max_bytes=1 << 20, session_id=opened.session_id, session_epoch=epoch
                    ),
                    VERSION,
                )
            )
            for epoch in range(1, POLLS + 1)
        ]
        before, began, down = server.cpu_seconds(), time.perf_counter(), 0
        for frame in frames:
            client.socket.sendall(frame)
            down = int.from_bytes(client._exactly(4), "big") + 4
            client._exactly(down - 4)
        took = time.perf_counter() - began
        return (server.cpu_seconds() - before) / POLLS, took / POLLS, len(frames[0]), down


def _until_led(client: RawClient) -> None:
    """Kafka answers before the partitions have a leader."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
        (topic,) = client.call(request, MetadataResponse, 9).topics
        if len(topic.partitions) == PARTITIONS and not any(p.error_code for p in topic.partitions):
            time.sleep(1)
            return
        time.sleep(0.2)
    raise RuntimeError("its partitions get no leader")


def produce(server: Server, topic: str, mb: int) -> None:
    """So many MB of records that do not compress."""
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    producer.list_topics(topic, 10)
    value = os.urandom(RECORD)
    for _ in range(mb * 1_000_000 // RECORD):
        producer.produce(topic, value, partition=0)
    if producer.flush(120):
        raise RuntimeError(f"{server.name} did not take everything")


TABLES: dict[str, Callable[[list[Server], argparse.Namespace], None]] = {
    "throughput": throughput,
    "latency": latency,
    "idle": idle,
    "sessions": sessions,
}
