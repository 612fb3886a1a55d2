"""Garbage on the Kafka port: that connection is closed with one log line, nothing else happens."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_proto.headers import encode_request
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.metadata import MetadataRequest, MetadataResponse
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, fetch_request, produce
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
    "array of 2^33": b"\x00\x00\x00\x14\x00\x03\x00\x0c\x00\x00\x00\x01\x00\x04test\x00"
    b"\x80\x80\x80\x80\x20",
    "2^31 header tags": b"\x00\x00\x00\x13\x00\x03\x00\x0c" + HEADER + b"\xff\xff\xff\xff\x07",
    "a tag longer than the frame": b"\x00\x00\x00\x11\x00\x03\x00\x0c" + HEADER + b"\x01\x63\x7f",
    "a string longer than the frame": b"\x00\x00\x00\x14\x00\x03\x00\x01"
    + HEADER
    + b"\x00\x00\x00\x01\x7f\xff",
    "text that is not UTF-8": b"\x00\x00\x00\x0e\x00\x12\x00\x00"
    + HEADER.replace(b"test", b"\xff\xfe\xfd\xfc"),
    "400 KB of 0xff varints": (10 + 400_000).to_bytes(4, "big")
    + b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff"
    + b"\xff" * 400_000,
}


ALL_TOPICS = MetadataRequest(topics=None)


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


@pytest.mark.parametrize("size", [1, 4, 17, 399_000])
def test_half_a_request_and_goodbye(
    shared_cluster: Cluster, bystander: RawClient, size: int
) -> None:
    before = len(shared_cluster.gateway.log.read_text())
    for _ in range(20):
        with RawClient(shared_cluster.address) as hostile:
            hostile.socket.sendall(HOSTILE["400 KB of 0xff varints"][:size])
    assert shared_cluster.gateway.log.read_text()[before:] == ""


def test_one_byte_at_a_time_is_a_request_all_the_same(
    shared_cluster: Cluster, bystander: RawClient
) -> None:
    frame = b"".join(encode_request(9, "slow", ApiVersionsRequest(), 3))
    with RawClient(shared_cluster.address) as slow:
        slow.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(frame)):
            slow.socket.sendall(frame[at : at + 1])
            time.sleep(0.002)
        assert slow.receive(ApiVersionsResponse, 3)[0] == 9


@pytest.mark.parametrize("request_", [ApiVersionsRequest(), ALL_TOPICS])
def test_bytes_behind_a_request_are_not_looked_at(
    shared_cluster: Cluster, bystander: RawClient, request_: Message
) -> None:
    """As in Kafka: kafka-go's DescribeAcls has one."""
    frame = b"".join(encode_request(9, "long", request_, 3))[4:] + b"abc"
    with RawClient(shared_cluster.address) as client:
        client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        assert client.receive_frame()[:4] == (9).to_bytes(4, "big")


@pytest.mark.long
def test_ten_thousand_requests_in_one_go(shared_cluster: Cluster, bystander: RawClient) -> None:
    frames = [b"".join(encode_request(i, None, ALL_TOPICS, 12)) for i in range(10_000)]
    with RawClient(shared_cluster.address, timeout=60) as eager:
        sender = threading.Thread(target=eager.socket.sendall, args=(b"".join(frames),))
        sender.start()
        for i in range(10_000):
            assert eager.receive(MetadataResponse, 12)[0] == i
        sender.join()


@pytest.mark.long
def test_clients_that_never_read_hold_little(shared_cluster: Cluster, bystander: RawClient) -> None:
    """Each gets what sockets hold and one answer more, whatever it asks for."""
    create_topic(bystander, "unread")
    for _ in range(5):
        produce(bystander, "unread", bytes(900_000))
    request = fetch_request("unread", 0, max_bytes=5 << 20, partition_max_bytes=5 << 20)
    frame = b"".join(encode_request(1, None, request, 12)) * 200
    before = resident_kib(shared_cluster.gateway.pid)
    deaf = [RawClient(shared_cluster.address, timeout=0.5) for _ in range(8)]
    for client in deaf:
        client.socket.sendall(frame)
    time.sleep(1)
    bystander.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    grown = resident_kib(shared_cluster.gateway.pid) - before
    for client in deaf:
        client.socket.close()
    assert grown < 8 * 12 * 1_024


@pytest.mark.long
def test_a_client_that_never_reads_is_not_read_from(
    shared_cluster: Cluster, bystander: RawClient
) -> None:
    frames = b"".join(encode_request(1, None, ALL_TOPICS, 12)) * 10_000
    before = resident_kib(shared_cluster.gateway.pid)
    with RawClient(shared_cluster.address, timeout=1) as deaf, pytest.raises(TimeoutError):
        deaf.socket.sendall(frames * 50)
    assert resident_kib(shared_cluster.gateway.pid) - before < 16_384


@pytest.mark.long
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


@pytest.mark.long
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
