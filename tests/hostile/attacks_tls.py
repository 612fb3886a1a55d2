"""Clients of a TLS listener that are none, or that make their records dear."""

from __future__ import annotations

import random
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.support.certificates import Authority
from tests.support.key_updates import KeyUpdates
from tests.support.raw_client import RawClient


def _certificate(folder: Path) -> None:
    Authority(folder).issue("server", ("127.0.0.1",))


_tls = partial(
    attack,
    part_of_tests=True,
    listeners="INSIDE://127.0.0.1:0,SSL://127.0.0.1:0",
    gateway=(
        *("--listener-security-protocol-map", "INSIDE:PLAINTEXT"),
        *("--ssl-certfile", "{folder}/server.pem"),
        *("--connection-authentication-timeout-ms", "2000"),
    ),
    prepare=_certificate,
)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _raw(arena: Arena) -> socket.socket:
    return socket.create_connection(arena.cluster.address_of("SSL"), 10)


def _others_are_served(arena: Arena) -> None:
    """An honest client gets in, within the time that clients wait."""
    with RawClient(arena.cluster.address_of("SSL"), 10, tls=_context()) as client:
        client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)


@_tls("garbage comes to a TLS listener")
def garbage(arena: Arena) -> None:
    """Also garbage that begins like a handshake."""
    chance = random.Random(7)
    begins = (b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x03\x40\x00", b"\x80\x2e\x01", b"GET / ")
    for _ in range(500):
        sent = chance.choice(begins) + chance.randbytes(chance.choice((1, 40, 70_000)))
        with suppress(ConnectionError), _raw(arena) as one:
            one.sendall(sent)
    _others_are_served(arena)


@_tls("three hundred handshakes stop midway, and one gets in")
def stopped(arena: Arena) -> None:
    hello = _hello()
    with ExitStack() as opened:
        for number in range(300):
            one = opened.enter_context(_raw(arena))
            with suppress(ConnectionError):  # the oldest of them give way
                one.sendall(hello[: number * 2 + 1])
        _others_are_served(arena)


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _context().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@_tls("six hundred clients begin a handshake and leave when it is their turn")
def abandoned(arena: Arena) -> None:
    """Each costs a signature: in threads, not on the event loop."""
    hello = _hello()
    for _ in range(600):
        with suppress(ConnectionError), _raw(arena) as one:
            one.sendall(hello)
    _others_are_served(arena)


@_tls("keys are changed a hundred thousand times")
def new_keys(arena: Arena) -> None:
    """Each change costs the gateway 9 µs and the client 27 bytes; it is closed for them."""
    closed = 0
    for _ in range(5):
        client = KeyUpdates(arena.cluster.address_of("SSL"))
        with client.socket:
            try:
                for _ in range(20):
                    client.socket.sendall(client.records(1_000))
                while client.socket.recv(1 << 16):
                    pass
                closed += 1
            except ConnectionError:
                closed += 1
    assert closed == 5, f"{5 - closed} may go on"
    _others_are_served(arena)


@_tls("a client sends single bytes as records, and breaks off in the midst of one")
def crumbs(arena: Arena) -> None:
    tls = _context().wrap_socket(_raw(arena))
    with tls:
        tls.sendall((1 << 20).to_bytes(4, "big"))
        began = time.monotonic()
        for _ in range(20_000):
            tls.sendall(b"x")
            if time.monotonic() - began > 3:
                break
        raw = socket.socket(fileno=tls.detach())
    with raw:
        raw.settimeout(10)
        raw.sendall(b"\x17\x03\x03\x40\x00" + bytes(100))
    _others_are_served(arena)


@_tls("a record is changed on its way")
def damaged(arena: Arena) -> None:
    """The connection is closed; no byte of the record is served."""
    tls = _context().wrap_socket(_raw(arena))
    with socket.socket(fileno=tls.detach()) as raw:
        raw.settimeout(10)
        raw.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
        with suppress(ConnectionResetError):
            while raw.recv(1 << 10):
                pass
    _others_are_served(arena)
