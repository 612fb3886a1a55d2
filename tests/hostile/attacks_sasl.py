"""Clients that have not authenticated: floods, drips, work behind a login, guesses."""

from __future__ import annotations

import contextlib
import socket
import time
from functools import partial

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_proto.schema.metadata import MetadataRequest
from quafka_proto.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quafka_proto.schema.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.hostile.arena import Arena, frame
from tests.hostile.catalogue import attack
from tests.support.raw_client import RawClient
from tests.support.sasl_users import alter_users, log_in_plain, upsertion

_sasl = partial(
    attack,
    listeners="INSIDE://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    gateway=(
        *("--listener-security-protocol-map", "INSIDE:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"),
        *("--sasl-enabled-mechanisms", "PLAIN,SCRAM-SHA-256"),
        *("--super-users", "User:ANONYMOUS", "--connection-authentication-timeout-ms", "3000"),
        *("--max-failed-authentications-per-ip", "0"),
    ),
)
HANDSHAKE = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
PASSWORD = "secret"


def _address(arena: Arena) -> tuple[str, int]:
    return arena.cluster.address_of("CLIENTS")


def _open(arena: Arena) -> socket.socket:
    return socket.create_connection(_address(arena), 10)


def _logs_in(arena: Arena) -> None:
    """Somebody else can log in, within seconds."""
    alter_users(arena.address, upsertion("alice", PASSWORD))
    with RawClient(_address(arena), 10) as client:
        assert log_in_plain(client, "alice", PASSWORD).error_code == 0


def _all_closed(arena: Arena, begins: list[bytes]) -> None:
    """Each on a connection of its own; the gateway must close them all."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(_open(arena)) for _ in begins]
        for sock, begin in zip(sockets, begins, strict=True):
            with contextlib.suppress(OSError):
                sock.sendall(begin)
        for sock in sockets:
            assert _closed(sock)


def _closed(sock: socket.socket) -> bool:
    sock.settimeout(6)
    with contextlib.suppress(ConnectionError):
        while sock.recv(1 << 16):
            pass
    return True


@_sasl("before a login, frames of up to 2 GB are announced and begun", part_of_tests=True)
def huge(arena: Arena) -> None:
    sizes = (1 << 17, 1 << 20, 100 << 20, (1 << 31) - 1, 0, (1 << 32) - 1)
    _all_closed(arena, [size.to_bytes(4) + bytes(50_000) for size in sizes] * 20)
    _logs_in(arena)


@_sasl("a thousand connections never log in; then a client does", part_of_tests=True)
def crowd(arena: Arena) -> None:
    with contextlib.ExitStack() as opened:
        for number in range(1_000):
            sock = opened.enter_context(_open(arena))
            if number % 2:
                sock.sendall(HANDSHAKE)
        _logs_in(arena)


@_sasl("logins come a byte at a time from a hundred connections", part_of_tests=True)
def drip(arena: Arena) -> None:
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(_open(arena)) for _ in range(100)]
        began = time.monotonic()
        while sockets and time.monotonic() - began < 8:
            for sock in list(sockets):
                try:
                    sock.sendall(b"\0")
                except OSError:
                    sockets.remove(sock)
            time.sleep(0.3)
        assert not sockets, f"{len(sockets)} connections outlive their deadline"
        _logs_in(arena)


@_sasl("work is pipelined behind wrong logins, and before any", part_of_tests=True)
def pipelined(arena: Arena) -> None:
    topic = arena.name("never")
    data = PartitionProduceData(index=0, records=b"batch")
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    work = frame(ProduceRequest(acks=-1, topic_data=topics), 9) * 100
    work += frame(MetadataRequest(topics=None), 12) * 100
    wrong = frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 1)
    for _ in range(4):
        _all_closed(arena, [HANDSHAKE + wrong + work, HANDSHAKE + work, work] * 30)
    figures = arena.figures("gateway")
    assert figures["quafka_gateway_unauthenticated_connections"] <= 1
    _logs_in(arena)


@_sasl("handshakes, ApiVersions and refused requests are repeated", part_of_tests=True)
def repeated(arena: Arena) -> None:
    versions = frame(ApiVersionsRequest(), 3)
    refused = frame(SaslHandshakeRequest(mechanism="x" * 5_000), 1)
    unknown = b"\0\0\0\x0a\0\x12\x7f\xff\0\0\0\x01\xff\xff"  # an unknown version, again and again
    begins = [versions * 1_000, HANDSHAKE * 1_000, refused * 10, unknown * 2_000]
    _all_closed(arena, begins * 10)
    _logs_in(arena)


def _guess(arena: Arena, connections: int, rounds: int) -> None:
    guess = frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + b"p" * 4_000), 1)
    for _ in range(rounds):
        with contextlib.ExitStack() as opened:
            sockets = [opened.enter_context(_open(arena)) for _ in range(connections)]
            for sock in sockets:
                with contextlib.suppress(OSError):  # it may have given way
                    sock.sendall(HANDSHAKE + guess)
            for sock in sockets:
                assert _closed(sock)
    _logs_in(arena)


@_sasl("a hundred connections guess passwords at once", part_of_tests=True)
def guesses(arena: Arena) -> None:
    _guess(arena, 100, 3)


@_sasl("five hundred connections guess passwords, ten times")
def many_guesses(arena: Arena) -> None:
    _guess(arena, 500, 10)


@_sasl("exchanges are begun with names of all lengths and never ended", part_of_tests=True)
def begun(arena: Arena) -> None:
    shake = frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    with contextlib.ExitStack() as opened:
        for length in (1, 255, 4_000, 60_000) * 50:
            first = b"n,,n=" + b"a" * length + b",r=abc"
            sock = opened.enter_context(_open(arena))
            with contextlib.suppress(OSError):
                sock.sendall(shake + frame(SaslAuthenticateRequest(auth_bytes=first), 1))
        _logs_in(arena)


@_sasl("a client authenticates again without end", part_of_tests=True)
def again(arena: Arena) -> None:
    alter_users(arena.address, upsertion("alice", PASSWORD))
    with RawClient(_address(arena)) as client:
        assert log_in_plain(client, "alice", PASSWORD).error_code == 0
        client.socket.sendall(HANDSHAKE * 2_000)
        for _ in range(2_000):
            answer = client.receive_frame()
            assert int.from_bytes(answer[4:6]) == ErrorCode.ILLEGAL_SASL_STATE
