"""TLS at the gateway: its transport beside others, then the gateway itself.

The first table is an echo server alone: 100 bytes there and back on 32 connections, then one way
on two; CPU is the server's. Beside `TlsTransport` are asyncio without and with TLS, and aiofastnet
if that is installed. The second is a real gateway at both kinds of listener; `--kafka` puts Apache
Kafka beside it. Medians of the rounds, which are interleaved.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

from quafka_gateway.edge.tls.contexts import TlsContext
from quafka_gateway.edge.tls.handshake import Handshakes, TlsHandshake
from quafka_gateway.listeners import KafkaListener, SecurityProtocol, TlsSettings
from quafka_gateway.security.sasl.limits import Unauthenticated
from quafka_proto.headers import encode_request
from quafka_proto.schema.api_versions import ApiVersionsRequest
from tests.bench import peers
from tests.bench.consumer import TLS, Process
from tests.bench.peers import Server
from tests.support.certificates import Authority
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient

_KINDS = ("plain", "asyncio", "aiofastnet", "ours")
_LOADS = ("small", "in", "out")
_SMALL = 100
_BIG = os.urandom(256 << 10)
_CONNECTIONS = {"small": 32, "in": 2, "out": 2}


class Figures(NamedTuple):
    """What a load has moved per second, and CPU microseconds per unit (a request, a megabyte)."""

    rate: float
    cpu: float


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench tls", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64, help="that are consumed")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka, too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        certificate = Authority(Path(scratch)).issue("server", ("127.0.0.1",))
        _transports(certificate, options.seconds, options.rounds)
    _servers(options.seconds, options.rounds, options.megabytes, with_kafka=options.kafka)


def _median(runs: Sequence[Figures]) -> Figures:
    return Figures(*(statistics.median(each) for each in zip(*runs, strict=True)))


# --- transports alone ---------------------------------------------------------------------------


def _transports(certificate: Path, seconds: float, rounds: int) -> None:
    found: dict[tuple[str, str], list[Figures]] = {}
    for _ in range(rounds):
        for load in _LOADS:
            for kind in _KINDS:
                figures = _one_transport(kind, load, certificate, seconds)
                if figures is not None:
                    found.setdefault((kind, load), []).append(figures)
    print("| transport | 100 bytes, there and back | in | out |\n| --- | --- | --- | --- |")
    for kind in _KINDS:
        if (kind, "small") not in found:
            continue
        small, into, out = (_median(found[kind, load]) for load in _LOADS)
        print(
            f"| {kind} | {small.rate:,.0f}/s, {small.cpu:.1f} µs "
            f"| {into.rate:,.0f} MB/s, {into.cpu:,.0f} µs/MB "
            f"| {out.rate:,.0f} MB/s, {out.cpu:,.0f} µs/MB |"
        )


def _one_transport(kind: str, load: str, certificate: Path, seconds: float) -> Figures | None:
    """None: this transport is not installed."""
    words = [sys.executable, "-m", __name__, kind, load, str(certificate)]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        port = server.stdout.readline().strip()
        if not port:
            return None
        moved = _client(("127.0.0.1", int(port)), kind != "plain", load, seconds)
        server.stdin.close()
        used = float(server.stdout.readline())
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    units = moved if load == "small" else moved / 1e6
    return Figures(units / seconds, used / units * 1e6)


def _client(address: tuple[str, int], encrypted: bool, load: str, seconds: float) -> int:
    """Return how many requests were answered, or how many bytes went one way."""
    with ExitStack() as opened:
        count = _CONNECTIONS[load]
        clients = [opened.enter_context(_connect(address, encrypted)) for _ in range(count)]
        until = time.perf_counter() + seconds
        moved = 0
        if load == "out":
            for each in clients:
                each.sendall(b"g")
        while time.perf_counter() < until:
            if load == "small":
                moved += _ping(clients, bytes(_SMALL), _SMALL)
            elif load == "in":
                for each in clients:
                    each.sendall(_BIG)
                    moved += len(_BIG)
            else:
                moved += sum(len(each.recv(1 << 18)) for each in clients)
    return moved


def _ping(clients: Sequence[socket.socket], request: bytes, answer: int) -> int:
    for each in clients:
        each.sendall(request)
    for each in clients:
        missing = answer
        while missing:
            missing -= len(each.recv(missing))
    return len(clients)


def _connect(address: tuple[str, int], encrypted: bool) -> socket.socket:
    opened = socket.create_connection(address, 30)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _trusting().wrap_socket(opened) if encrypted else opened


def _trusting() -> ssl.SSLContext:
    """A client that takes any certificate: what that costs is the client's affair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _Echo(asyncio.Protocol):
    """Answers each 100 bytes with as many, or sends without an end."""

    def __init__(self, load: str) -> None:
        self._load = load
        self._missing = 0
        self._may_write = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=1)  # asyncio with TLS never goes on after 0

    def data_received(self, data: bytes) -> None:
        if self._load == "small":
            self._missing += len(data)
            while self._missing >= _SMALL:
                self._missing -= _SMALL
                self._transport.write(bytes(_SMALL))
        elif self._load == "out":
            self._send()

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._send()

    def _send(self) -> None:
        while self._load == "out" and self._may_write and not self._transport.is_closing():
            self._transport.write(_BIG)


async def _serve(kind: str, load: str, certificate: Path) -> None:
    loop = asyncio.get_running_loop()
    settings = TlsSettings(certificate, certificate, ciphers="ECDHE+AESGCM")
    tls = TlsContext(KafkaListener("SSL", SecurityProtocol.SSL, "127.0.0.1", 0), settings)
    make: Callable[[], asyncio.BaseProtocol] = lambda: _Echo(load)  # noqa: E731
    if kind == "aiofastnet":
        try:
            aiofastnet = import_module("aiofastnet")
        except ImportError:
            return
        server = await aiofastnet.create_server(loop, make, "127.0.0.1", 0, ssl=tls.context)
    elif kind == "ours":
        handshakes = Handshakes(Unauthenticated(100, 100), 10)
        begin = lambda: TlsHandshake(handshakes, tls, lambda name: _Echo(load))  # noqa: E731
        server = await loop.create_server(begin, "127.0.0.1", 0)
    else:
        context = tls.context if kind == "asyncio" else None
        server = await loop.create_server(make, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    before = time.process_time()
    await asyncio.to_thread(sys.stdin.read)
    print(time.process_time() - before, flush=True)


# --- whole servers ------------------------------------------------------------------------------


def _servers(seconds: float, rounds: int, megabytes: int, *, with_kafka: bool) -> None:
    print(
        "\n| server | handshakes | ApiVersions, 32 connections | consume |\n"
        "| --- | --- | --- | --- |"
    )
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        servers = [running.enter_context(peers.quafka(Path(scratch) / "quafka"))]
        if with_kafka:
            servers.append(running.enter_context(peers.kafka(Path(scratch) / "kafka")))
        records = megabytes << 3
        for server in servers:
            with RawClient(server.address) as client:
                create_topic(client, "tls")
                for _ in range(records // 4):
                    produce(client, "tls", *[os.urandom(128 << 10)] * 4)
        for server in servers:
            for encrypted in (False, True):
                _print_server(server, encrypted, seconds, rounds, records)


def _print_server(
    server: Server, encrypted: bool, seconds: float, rounds: int, records: int
) -> None:
    bootstrap = server.encrypted if encrypted else server.bootstrap
    host, port = bootstrap.removeprefix(TLS).rsplit(":", 1)
    address = (host, int(port))
    small: list[Figures] = []
    consumed: list[Figures] = []
    shaken: list[Figures] = []
    for _ in range(rounds):
        small.append(_measured(server, seconds, lambda: _api_versions(address, encrypted, seconds)))
        consumed.append(_consumed(server, bootstrap, records))
        if encrypted:
            shake = lambda: _shake_hands(address, seconds)  # noqa: E731
            shaken.append(_measured(server, seconds, shake))
    requests, consume = _median(small), _median(consumed)
    hands = f"{_median(shaken).rate:,.0f}/s, {_median(shaken).cpu:,.0f} µs" if shaken else "–"
    print(
        f"| {server.name}{', TLS' if encrypted else ''} | {hands} "
        f"| {requests.rate:,.0f}/s, {requests.cpu:.0f} µs "
        f"| {consume.rate:,.0f} MB/s, {consume.cpu:,.0f} µs/MB |",
        flush=True,
    )


def _measured(server: Server, seconds: float, load: Callable[[], int]) -> Figures:
    before = server.cpu_seconds()
    done = load()
    return Figures(done / seconds, (server.cpu_seconds() - before) / done * 1e6)


def _api_versions(address: tuple[str, int], encrypted: bool, seconds: float) -> int:
    request = b"".join(encode_request(1, "bench", ApiVersionsRequest(), 0))
    with ExitStack() as opened:
        clients = [opened.enter_context(_connect(address, encrypted)) for _ in range(32)]
        clients[0].sendall(request)
        size = int.from_bytes(clients[0].recv(4), "big")
        missing = size
        while missing:
            missing -= len(clients[0].recv(missing))
        done = 0
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            done += _ping(clients, request, size + 4)
    return done


def _consumed(server: Server, bootstrap: str, records: int) -> Figures:
    reader = Process("raw", bootstrap, "tls", records, 1)
    before, began = server.cpu_seconds(), time.perf_counter()
    reader.go()
    reader.finished()
    took, used = time.perf_counter() - began, server.cpu_seconds() - before
    size = records * (128 << 10) / 1e6
    return Figures(size / took, used / size * 1e6)


def _shake_hands(address: tuple[str, int], seconds: float) -> int:
    """Connect by TLS in four threads, again and again."""
    done = 0
    until = time.perf_counter() + seconds
    context = _trusting()

    def again() -> None:
        nonlocal done
        while time.perf_counter() < until:
            with context.wrap_socket(socket.create_connection(address, 30)):
                done += 1

    threads = [threading.Thread(target=again) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return done


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, 4_096))
    asyncio.run(_serve(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
