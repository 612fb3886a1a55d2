"""Clients that hold as much as they may, for as long as they may."""

from __future__ import annotations

import contextlib
import socket
import time

from quafka_proto.schema.metadata import MetadataRequest
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.hostile.arena import Arena, frame
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import produce

_MILLION = ("--max-partitions-per-topic", "100000", "--max-partitions-per-org", "1100000")
_REQUEST = ("--max-partitions-per-request", "100000")
_WHY = "a million partitions are in the topic registry, though deleted"


def _from(address: str, arena: Arena) -> socket.socket:
    """A connection from another address of the loopback network."""
    return socket.create_connection(arena.address, 30, (address, 0))


@attack("a million partitions exist; twenty connections ask for all of them eight times", "8",
        growth_mib=256, broker=_MILLION, gateway=_REQUEST, why=_WHY)  # fmt: skip
def million(arena: Arena) -> None:
    names = [arena.name() for _ in range(10)]
    with arena.connect(100) as client:
        for name in names:
            topic = CreatableTopic(name=name, num_partitions=100_000, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
            answer = client.call(request, CreateTopicsResponse, 5)
            assert answer.topics[0].error_code == 0, answer.topics[0]
    requests = frame(MetadataRequest(topics=None), 12) * 8
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(arena.raw()) for _ in range(20)]
        for sock in sockets:
            sock.sendall(requests)
        room = bytearray(1 << 20)
        for sock in sockets[:4]:  # the others do not read
            left = 0
            for _ in range(8):
                left = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
                assert left > 20_000_000
                while left:
                    left -= sock.recv_into(room, min(left, len(room)))
        time.sleep(1)
    with arena.connect(100) as client:
        gone = DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
        client.call(gone, DeleteTopicsResponse, 5)


@attack("unfinished requests of 60 MB come from twelve addresses, again and again", "9")
def many_addresses(arena: Arena) -> None:
    filler = bytes(1 << 20)
    topic = arena.topic()
    with contextlib.ExitStack() as opened:
        for number in range(24):
            sock = opened.enter_context(_from(f"127.0.1.{1 + number % 12}", arena))
            with contextlib.suppress(OSError):  # it may be closed for it
                sock.sendall((99_000_000).to_bytes(4, "big"))
                for _ in range(60):
                    sock.sendall(filler)
            with arena.connect(10) as client:
                produce(client, topic, bytes(500_000))


@attack("three thousand connections come from one address and stay", "9", part_of_make_test=False)
def one_address(arena: Arena) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(3_000):
            with contextlib.suppress(OSError):
                opened.enter_context(_from("127.0.1.77", arena))
        with arena.connect(10) as client:
            produce(client, arena.topic(), b"served")
