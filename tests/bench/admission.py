"""What it costs to check every record before it is stored.

Nanoseconds a byte of uncompressed records in the process itself, CRC and header alone (all that
was checked before ADR 30) beside everything; then produces through gateway and broker over one
connection, one after the other, with the CPU time of both processes: run that on two versions to
compare them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from quafka_proto.compression import Codec
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import split_batches
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient

SIZES = (10, 100, 1_000)
BATCHES = (16_000, 800_000)
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
VERSION = 9


def batch_of(size: int, total: int, codec: Codec) -> tuple[bytes, int]:
    """A batch of so many uncompressed bytes, half of which compress; and how many these are."""
    now = time.time_ns() // 1_000_000
    value = os.urandom(size // 2) + bytes(size - size // 2)
    count = max(1, total // (size + 12))
    records = [Record(0, now + n // 50, b"%06d" % n, value, []) for n in range(count)]
    return bytes(build_batch(records, codec=codec)), len(build_batch(records)) - 61


def best(work: Callable[[], object], rounds: int) -> float:
    """CPU seconds of the fastest run: what others do on the machine is hardly counted."""
    found: list[float] = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return min(found)


def checks(rounds: int) -> None:
    from quafka_broker.admission.checks import Scratch, admit
    from quafka_broker.config.settings import BrokerConfig
    from quafka_broker.topics.configs import policy

    rules = policy(BrokerConfig(), {})._replace(max_message_bytes=8 << 20)
    scratch = Scratch(4 << 20)
    print(f"{'ns a byte':34}{'CRC, header':>14}{'all of it':>14}")
    for codec in CODECS:
        for total in BATCHES:
            for size in SIZES:
                batch, plain = batch_of(size, total, codec)
                now = time.time_ns() // 1_000_000
                before = best(partial(split_batches, batch), rounds)
                after = best(partial(admit, rules, batch, now, scratch), rounds)
                label = f"{codec.name.lower()}, {total // 1000} KB of {size} B"
                print(f"{label:34}{before / plain * 1e9:14.2f}{after / plain * 1e9:14.2f}")


def cpu_seconds(*pids: int) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def produces(megabytes: int) -> None:
    print(f"\n{'produced through both processes':34}{'MB/s':>14}{'CPU s a GB':>14}")
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(Path(folder), broker_args=("--wal-fsync", "never")) as cluster,
        RawClient(cluster.address) as client,
    ):
        topics = [MetadataRequestTopic(name="bench")]
        client.call(MetadataRequest(topics=topics), MetadataResponse, 4)
        pids = cluster.broker.pid, cluster.gateway.pid
        for codec in CODECS[:2]:
            for total in BATCHES:
                for size in SIZES:
                    batch, plain = batch_of(size, total, codec)
                    data = PartitionProduceData(index=0, records=batch)
                    topic = TopicProduceData(name="bench", partition_data=[data])
                    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])
                    count = max(1, megabytes * 1_000_000 // plain)
                    client.call(request, ProduceResponse, VERSION)
                    began, used = time.perf_counter(), cpu_seconds(*pids)
                    for _ in range(count):
                        answer = client.call(request, ProduceResponse, VERSION)
                    seconds, used = time.perf_counter() - began, cpu_seconds(*pids) - used
                    code = answer.responses[0].partition_responses[0].error_code
                    assert not code, f"error {code}"
                    label = f"{codec.name.lower()}, {total // 1000} KB of {size} B"
                    moved = count * plain
                    print(f"{label:34}{moved / seconds / 1e6:14.1f}{used / moved * 1e9:14.2f}")


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench admission", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--megabytes", type=int, default=20, help="of each kind of batch")
    parser.add_argument("--only", choices=("checks", "produces"))
    options = parser.parse_args(arguments)
    if options.only != "produces":
        checks(options.rounds)
    if options.only != "checks":
        produces(options.megabytes)
