"""Bytes that are no requests, or not whole, or too many."""

from __future__ import annotations

import contextlib
import socket
import time

from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.metadata import MetadataRequest
from tests.hostile.arena import Arena, frame
from tests.hostile.catalogue import attack


@attack("a hundred connections announce 100 MiB each and send nothing", part_of_tests=True)
def announced(arena: Arena) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(arena.raw()).sendall((100 << 20).to_bytes(4, "big"))
        time.sleep(0.5)
        _answers(arena)


@attack("six connections hold unfinished frames of 99 MB", "9", part_of_tests=True)
def unfinished(arena: Arena) -> None:
    """Together above `queued.max.request.bytes`; then everybody's large requests are refused."""
    size = 99_000_000
    filler = bytes(1 << 20)
    with contextlib.ExitStack() as opened:
        for _ in range(6):
            sock = opened.enter_context(arena.raw(30))
            with contextlib.suppress(OSError):  # it may be closed for it
                sock.sendall(size.to_bytes(4, "big"))
                for _ in range(size // len(filler)):
                    sock.sendall(filler)
        topic = arena.topic()
        for _ in range(20):  # a request of more than one packet, of somebody else
            _produce_large(arena, topic)


def _produce_large(arena: Arena, topic: str) -> None:
    from tests.support.kafka_calls import produce

    with arena.connect(10) as client:
        produce(client, topic, bytes(500_000))


@attack("two thousand connections come and go", part_of_tests=True)
def churn(arena: Arena) -> None:
    request = frame(ApiVersionsRequest(), 0)
    for _ in range(20):
        with contextlib.ExitStack() as opened:
            for _ in range(100):
                opened.enter_context(arena.raw()).sendall(request)


@attack("five thousand connections are open at once", item="")
def crowd(arena: Arena) -> None:
    """More than `max.connections`; the bystander has its own already."""
    with contextlib.ExitStack() as opened:
        for _ in range(5_000):
            with contextlib.suppress(OSError):
                opened.enter_context(arena.raw(2))
        time.sleep(0.5)


@attack("a thousand Metadata requests are pipelined", part_of_tests=True)
def pipelined(arena: Arena) -> None:
    _pipeline(arena, 1)


@attack("ten thousand Metadata requests are pipelined")
def pipelined_for_longer(arena: Arena) -> None:
    _pipeline(arena, 10)


def _pipeline(arena: Arena, thousands: int) -> None:
    request = frame(MetadataRequest(topics=[]), 12)
    with arena.connect() as client:
        for _ in range(thousands):
            client.socket.sendall(request * 1_000)
            for _ in range(1_000):
                client.receive_frame()


@attack("twenty connections ask without end and never read", part_of_tests=True)
def deaf(arena: Arena) -> None:
    requests = frame(MetadataRequest(topics=None), 12) * 20_000
    with contextlib.ExitStack() as opened:
        for _ in range(20):
            sock = opened.enter_context(arena.raw(0.1))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            with contextlib.suppress(TimeoutError):
                sock.sendall(requests)
        time.sleep(1)


@attack("requests come a byte at a time from a hundred connections", part_of_tests=True)
def dribble(arena: Arena) -> None:
    request = frame(MetadataRequest(topics=None), 12)
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(arena.raw()) for _ in range(100)]
        for at in range(len(request)):
            for sock in sockets:
                sock.sendall(request[at : at + 1])


def _answers(arena: Arena) -> None:
    with arena.connect(5) as client:
        assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
