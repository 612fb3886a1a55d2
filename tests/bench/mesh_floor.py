"""The floor of QUIC by datagram size: seal, open and system calls alone, in ms of CPU per MB.

One process does for both ends what no implementation in Python can leave out: AES-GCM and the
header mask of each packet by a call into OpenSSL, UDP_SEGMENT and UDP_GRO with up to 64 datagrams
in a system call, over loopback. It has no frames, streams, ACKs, congestion control or event loop.
`tls`: the same bytes sealed and opened by OpenSSL in records of 16 KiB, through memory, as bulk
answers over TLS are, and sent over TCP. The medians of several rounds.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quafka_loop import clock
from quafka_mesh_ops.bulk.tls import TlsPipe, encoded, tls_context
from tests.bench.mesh import CLIENT, SERVER, SIZES

_UDP_SEGMENT, _UDP_GRO = 103, 104
_BURST = 60_000
_SEGMENTS = 64
_OVERHEAD = 28
"""Bytes of a datagram that are no stream data: header, frame, tag."""
_BYTES = 24 << 20
_CHUNK = 128 << 10


class Packets:
    """As many bytes as QUIC packets of one size. Each method does one part of the work."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._aead = AESGCM(os.urandom(16))
        self._masks = Cipher(algorithms.AES(os.urandom(16)), modes.ECB()).encryptor()
        self._header = os.urandom(11)
        self._count = _BYTES // (size - _OVERHEAD)
        self._plain = memoryview(os.urandom(size - 16 - len(self._header)))
        self._sealed = self._aead.encrypt(self._nonce(0), self._plain, self._header)
        self._samples = bytes(16 * _SEGMENTS)

    def _nonce(self, number: int) -> bytes:
        return number.to_bytes(12, "big")

    def seal(self) -> None:
        """Seal each packet; the masks of a burst in one call."""
        for number in range(self._count):
            self._aead.encrypt(self._nonce(number), self._plain, self._header)
            if not number % _SEGMENTS:
                self._masks.update(self._samples)

    def open(self) -> None:
        """Open each packet."""
        nonce = self._nonce(0)
        for number in range(self._count):
            self._nonce(number)
            self._aead.decrypt(nonce, self._sealed, self._header)
            if not number % _SEGMENTS:
                self._masks.update(self._samples)

    def system_calls(self) -> None:
        """Send and receive the packets in bursts."""
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            receiver.bind(("127.0.0.1", 0))
            receiver.setsockopt(socket.SOL_UDP, _UDP_GRO, 1)
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            sender.connect(receiver.getsockname())
            each = max(1, min(_SEGMENTS, _BURST // self._size))
            burst = bytes(self._size * each)
            segment = [(socket.SOL_UDP, _UDP_SEGMENT, self._size.to_bytes(2, "little"))]
            for _ in range(self._count // each):
                sender.sendmsg([burst], segment)
                left = len(burst)
                while left > 0:
                    left -= len(receiver.recvmsg(1 << 16, 64)[0])


class Records:
    """The same bytes as TLS records."""

    def __init__(self) -> None:
        ours, theirs = (each.certificate(clock.utc_now()) for each in (SERVER, CLIENT))
        self._server = TlsPipe(
            tls_context(ours, encoded(theirs), server_side=True), encoded(theirs), server_side=True
        )
        self._client = TlsPipe(
            tls_context(theirs, encoded(ours), server_side=False), encoded(ours), server_side=False
        )
        self._client.begin()
        while not (self._server.established and self._client.established):
            self._server.receive(self._client.to_send())
            self._client.receive(self._server.to_send())
        self._chunk = os.urandom(_CHUNK)
        self._sealed: list[bytes] = []
        self._opened = memoryview(bytearray(_CHUNK))

    def seal(self) -> None:
        """Seal all bytes."""
        self._sealed.clear()
        for _ in range(_BYTES // _CHUNK):
            self._server.write(self._chunk)
            self._sealed.append(self._server.to_send())

    def open(self) -> None:
        """Open what was sealed."""
        for data in self._sealed:
            self._client.receive(data)
            while self._client.read_into(self._opened):
                pass

    def system_calls(self) -> None:
        """Send and receive the bytes over TCP."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sender = socket.create_connection(listener.getsockname())
            receiver, _ = listener.accept()
            with sender, receiver:
                for _ in range(_BYTES // _CHUNK):
                    sender.sendall(self._chunk)
                    left = len(self._chunk)
                    while left > 0:
                        left -= len(receiver.recv(1 << 18))


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench mesh_floor", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    print(f"{'ms of CPU per MB':16}{'seal':>8}{'open':>8}{'system calls':>14}{'together':>10}")
    works: dict[str, Packets | Records] = {f"QUIC {size}": Packets(size) for size in SIZES}
    works["tls"] = Records()
    found: dict[str, list[list[float]]] = {name: [] for name in works}
    for _ in range(options.rounds):
        for name, work in works.items():
            found[name].append([_cpu(part) for part in (work.seal, work.open, work.system_calls)])
    for name, rounds in found.items():
        seal, opened, calls = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name:16}{seal:8.2f}{opened:8.2f}{calls:14.2f}{seal + opened + calls:10.2f}")


def _cpu(part: Callable[[], None]) -> float:
    began = time.process_time()
    part()
    return (time.process_time() - began) * 1000 / (_BYTES / 1e6)
