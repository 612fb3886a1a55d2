"""Where the bytes of a large produce go: CPU of each step that touches all of them, by itself.

One uncompressed batch of about 1 MB, from the gateway's socket to the log. Each step is the
product's own function or the system call that it makes, without the Python around it; the sum is
what no saving of Python calls can go below. The best of many runs counts, so other work on the
machine hardly does.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from aioquic.quic.crypto import CryptoContext
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite

from quafka_loop.heap import keep_freed_memory
from quafka_mesh_ops.transport.aioquic_adapter.bulk import HEADER_SIZE, Template, seal_burst
from quafka_mesh_ops.transport.aioquic_adapter.protection import Keys
from quafka_proto.record_check import check_body
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import BATCH_HEADER_SIZE, PATCHED_SIZE, checked_part, read_header

_READ = 256 << 10
"""Bytes that asyncio reads from a TCP socket at a time."""
_DATAGRAM = 60_000
"""Bytes of a datagram between processes of one host."""
_BURST = 4
"""Datagrams that are sealed, and received, together."""
_NOW = 1_700_000_000_000


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench copies", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--record", type=int, default=1_000, help="bytes")
    options = parser.parse_args(arguments)
    keep_freed_memory()
    with ExitStack() as stack:
        steps = _steps(stack, options.record)
        print("\n| CPU µs for 1 MB | |\n| --- | ---: |")
        total = 0.0
        for label, step in steps.items():
            best = min(step() for _ in range(options.rounds)) * 1e6
            total += best
            print(f"| {label} | {best:.0f} |", flush=True)
        print(f"| all | {total:.0f} |")


def _steps(stack: ExitStack, record: int) -> dict[str, Callable[[], float]]:
    """By name: runs a step once and returns its CPU seconds."""
    count = 1_000_000 // (record + 10)
    records = [Record(0, _NOW, None, bytes(record), []) for _ in range(count)]
    batch = bytes(build_batch(records))
    header = read_header(batch)
    reads = [batch[at : at + _READ] for at in range(0, len(batch), _READ)]
    keys = _keys()
    template = Template.of(b"\x41" + bytes(8), b"\x04", _DATAGRAM)
    step = template.capacity * _BURST
    bursts = [memoryview(batch)[at : at + step] for at in range(0, len(batch), step)]
    sealed = [bytes(d) for data in bursts for d in seal_burst(template, keys, 0, 0, data, False)]
    parts = [batch[at : at + step] for at in range(0, len(batch), step)]
    log = tempfile.TemporaryFile()  # noqa: SIM115 - the stack closes it
    stack.callback(log.close)
    return {
        "gateway: read from TCP": _reading_tcp(stack, reads),
        "gateway: join the request": _timed(lambda: b"".join(reads)),
        "gateway: seal datagrams (join, AES-GCM)": _timed(
            lambda: [seal_burst(template, keys, 0, 0, data, False) for data in bursts]
        ),
        "gateway: send datagrams": _datagrams(stack, sealed, sending=True),
        "broker: receive datagrams": _datagrams(stack, sealed, sending=False),
        "broker: open datagrams (AES-GCM)": _timed(lambda: _open(keys, sealed)),
        "broker: join what was received together": _timed(lambda: _joined(bursts)),
        "broker: join the op": _timed(lambda: b"".join(parts)),
        "broker: CRC (with a copy)": _timed(lambda: checked_part(memoryview(batch), header)),
        "broker: check the records": _timed(
            lambda: check_body(header, batch, BATCH_HEADER_SIZE, len(batch))
        ),
        "broker: write to the page cache": _timed(
            lambda: os.writev(log.fileno(), [batch[:PATCHED_SIZE], batch]),
            lambda: os.ftruncate(log.fileno(), 0) if log.tell() > 1 << 30 else None,
        ),
    }


def _timed(
    step: Callable[[], object], before: Callable[[], object] | None = None
) -> Callable[[], float]:
    def run() -> float:
        if before is not None:
            before()
        began = time.thread_time()
        step()
        return time.thread_time() - began

    return run


def _keys() -> Keys:
    context = CryptoContext()
    context.setup(
        cipher_suite=CipherSuite.AES_128_GCM_SHA256,
        secret=bytes(32),
        version=QuicProtocolVersion.VERSION_1,
    )
    return Keys(context, bytes(32))


def _open(keys: Keys, sealed: list[bytes]) -> None:
    """Open as many bytes: AES-GCM runs in the same way backwards, and these are not checked."""
    for data in sealed:
        keys.aead.encrypt(bytes(12), memoryview(data)[HEADER_SIZE:], data[:HEADER_SIZE])


def _joined(bursts: list[memoryview]) -> None:
    for data in bursts:
        b"".join([data[at : at + _DATAGRAM] for at in range(0, len(data), _DATAGRAM)])


def _reading_tcp(stack: ExitStack, chunks: list[bytes]) -> Callable[[], float]:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    near = stack.enter_context(socket.create_connection(listener.getsockname()))
    far = stack.enter_context(listener.accept()[0])
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)

    def run() -> float:
        took = 0.0
        for chunk in chunks:
            near.sendall(chunk)
            missing = len(chunk)
            while missing:
                began = time.thread_time()
                missing -= len(far.recv(_READ))
                took += time.thread_time() - began
        return took

    return run


def _datagrams(stack: ExitStack, sealed: list[bytes], *, sending: bool) -> Callable[[], float]:
    near = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    far = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    far.bind(("127.0.0.1", 0))
    near.connect(far.getsockname())

    def run() -> float:
        took = 0.0
        for data in sealed:
            began = time.thread_time()
            near.sendmsg([data])
            sent = time.thread_time()
            far.recvmsg(1 << 16)
            took += sent - began if sending else time.thread_time() - sent
        return took

    return run
