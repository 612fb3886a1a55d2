"""Garbage on the Kafka port: that connection is closed with one log line, nothing else happens."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient

HEADER = b"\x00\x00\x00\x01\x00\x04test"  # correlation id, client id
HOSTILE = {
    "length of 2 GiB": b"\x7f\xff\xff\xff",
    "negative length": b"\xff\xff\xff\xfe",
    "length of zero": b"\x00\x00\x00\x00",
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost:9092\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "unknown API": b"\x00\x00\x00\x0e\x7f\x00\x00\x00" + HEADER,
    "known API in an unknown version": b"\x00\x00\x00\x0e\x00\x01\x00\x63" + HEADER,
    "header cut short": b"\x00\x00\x00\x03\x00\x03\x00",
    "body cut short": b"\x00\x00\x00\x10\x00\x03\x00\x01" + HEADER + b"\x00\x00",
    "forged array length": b"\x00\x00\x00\x12\x00\x03\x00\x01" + HEADER + b"\x7f\xff\xff\xff",
    "trailing bytes": b"\x00\x00\x00\x11\x00\x12\x00\x00" + HEADER + b"abc",
    "400 KB of 0xff varints": (10 + 400_000).to_bytes(4, "big")
    + b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff"
    + b"\xff" * 400_000,
}


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


@pytest.fixture
def bystander(shared_cluster: Cluster) -> Iterator[RawClient]:
    """A client that must notice nothing."""
    with RawClient(shared_cluster.address) as client:
        client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        yield client
        client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_cost_only_their_connection(
    shared_cluster: Cluster, bystander: RawClient, name: str
) -> None:
    log = shared_cluster.gateway.log
    before = len(log.read_text())
    with RawClient(shared_cluster.address) as hostile:
        port = hostile.socket.getsockname()[1]
        hostile.socket.sendall(HOSTILE[name])
        assert hostile.closed_by_peer()
    lines = [line for line in log.read_text()[before:].splitlines() if f":{port}" in line]
    assert len(lines) == 1, lines
    assert "Traceback" not in log.read_text()[before:]


def test_memory_stays_flat_under_garbage(shared_cluster: Cluster, bystander: RawClient) -> None:
    chance = random.Random(7)
    payloads = list(HOSTILE.values())

    def storm() -> None:
        for _ in range(150):
            with RawClient(shared_cluster.address) as hostile:
                hostile.socket.sendall(chance.choice(payloads))
                assert hostile.closed_by_peer()

    storm()
    settled = resident_kib(shared_cluster.gateway.pid)
    storm()
    storm()
    assert resident_kib(shared_cluster.gateway.pid) - settled < 4_096


def test_forged_lengths_hold_no_memory(shared_cluster: Cluster, bystander: RawClient) -> None:
    before = resident_kib(shared_cluster.gateway.pid)
    clients = [RawClient(shared_cluster.address) for _ in range(50)]
    for client in clients:
        client.socket.sendall((100 << 20).to_bytes(4, "big"))  # 100 MiB announced, none sent
    time.sleep(0.3)
    grown = resident_kib(shared_cluster.gateway.pid) - before
    for client in clients:
        client.socket.close()
    assert grown < 8_192
