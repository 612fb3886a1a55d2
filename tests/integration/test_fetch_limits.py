"""What the gateway holds is bounded, whatever is asked for and however slowly it is read."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from quafka_proto.headers import encode_request
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.cluster import Cluster
from tests.support.kafka_calls import metadata
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

CONNECTIONS = 1_000
PIPELINED = 3
BATCHES = 1_000
BATCH = bytes(build_batch([Record(0, 0, None, bytes(60_000), [])]))
RESPONSES, CACHE = 32 << 20, 16 << 20
FLOOR = 64 << 10
ALL = 0x7FFFFFFF


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def greedy(offset: int) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=ALL)
    return FetchRequest(
        max_wait_ms=1_000, min_bytes=1, max_bytes=ALL,
        topics=[FetchTopic(topic="t", partitions=[part])],
    )  # fmt: skip


def fill(client: RawClient) -> None:
    """60 MB in batches of 60 KB."""
    part = PartitionProduceData(index=0, records=BATCH)
    request = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[part])]
    )
    for _ in range(BATCHES // 50):
        for _ in range(50):
            client.send(request, 9)
        for _ in range(50):
            client.receive(ProduceResponse, 9)


def connect(address: tuple[str, int]) -> socket.socket:
    """A client that will not read, with little room in its kernel."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.connect(address)
    return client


def test_a_thousand_requests_for_2_gib_keep_memory_bounded(tmp_path: Path) -> None:
    settings = ("--queued-max-response-bytes", str(RESPONSES), "--fetch-cache-bytes", str(CACHE))
    with (
        Cluster(tmp_path, gateway_args=settings) as cluster,
        RawClient(cluster.address, 60) as reader,
    ):
        metadata(reader, "t")
        fill(reader)
        reader.call(greedy(0), FetchResponse, 12)
        before = resident(cluster.gateway.pid)
        clients = [connect(cluster.address) for _ in range(CONNECTIONS)]
        try:
            for number, client in enumerate(clients):
                for turn in range(PIPELINED):  # the first ones end in the system's buffers
                    request = greedy((number + 100 * turn) % BATCHES)
                    client.sendall(b"".join(encode_request(turn, "greedy", request, 12)))
            most = resident(cluster.gateway.pid)
            grown = time.monotonic()
            while time.monotonic() < grown + 3:
                time.sleep(0.1)
                now = resident(cluster.gateway.pid)
                if now > most:
                    most, grown = now, time.monotonic()
            # Others are served on.
            offset = 0
            while offset < BATCHES:
                answer = reader.call(greedy(offset), FetchResponse, 12)
                found = answer.responses[0].partitions[0]
                assert found.error_code == 0
                assert found.records
                offset += len(found.records) // len(BATCH)
                most = max(most, resident(cluster.gateway.pid))
        finally:
            for client in clients:
                client.close()
        # The bound: credit, cache, the least that everybody is given, and what a connection is.
        bound = RESPONSES + CACHE + CONNECTIONS * (FLOOR + (32 << 10)) + (24 << 20)
        print(f"{(most - before) >> 20} MiB more, bound {bound >> 20}")
        assert most - before < bound
