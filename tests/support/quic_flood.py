"""A flood of QUIC Initials as spoofed senders make it: from many addresses, and no answer heard.

    python -m tests.support.quic_flood HOST PORT RATE SECONDS

It ends after so many seconds, or with the end of its standard input.

Every datagram has a connection id of its own. One in `_HELLO_EVERY` is a real ClientHello, which
anybody can make; the others look like Initials and cannot be opened. Prints, at the end, how many
datagrams left in how many seconds, and how many bytes came back for the bytes sent.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

ALPN = "quafka-mesh/1"
SIZE = 1200
_HELLOS, _HELLO_EVERY = 256, 4
_ADDRESSES = 64
_SLICE = 0.01


def client_hello() -> bytes:
    """A first datagram that nobody follows up."""
    quic = QuicConnection(configuration=QuicConfiguration(alpn_protocols=[ALPN]))
    quic.connect(("127.0.0.1", 1), now=0.0)
    return bytes(quic.datagrams_to_send(now=0.0)[0][0])


def garbage(size: int = SIZE) -> bytes:
    """An Initial by its header (RFC 9000 section 17.2.2), with noise in it."""
    length = size - 26
    head = b"\xc0\x00\x00\x00\x01\x08" + os.urandom(8) + b"\x08" + os.urandom(8) + b"\x00"
    return head + (length | 0x4000).to_bytes(2, "big") + os.urandom(length)


def senders(count: int = _ADDRESSES) -> list[socket.socket]:
    """Sockets on addresses of their own in 127.0.0.0/8, which hear what is sent back."""
    found: list[socket.socket] = []
    for number in range(count):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((f"127.{random.randrange(1, 255)}.{number}.{random.randrange(1, 255)}", 0))
        sock.setblocking(False)
        found.append(sock)
    return found


def _datagrams() -> Iterator[bytes]:
    hellos = itertools.cycle([client_hello() for _ in range(_HELLOS)])
    for number in itertools.count():
        yield garbage() if number % _HELLO_EVERY else next(hellos)


def _received(sock: socket.socket) -> int:
    total = 0
    while True:
        try:
            total += len(sock.recv(65_536))
        except OSError:
            return total


def _is_over() -> bool:
    """Whether the standard input has ended. Nothing is ever written to it."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable)


def flood(address: tuple[str, int], rate: float, seconds: float) -> dict[str, float]:
    """Send; blocks. Says `ready` on stdout when the first datagram is about to leave."""
    sockets, datagrams = senders(), _datagrams()
    next(datagrams)
    print("ready", flush=True)
    began = time.monotonic()
    sent = sent_bytes = received = 0
    while (now := time.monotonic() - began) < seconds and not _is_over():
        while sent < now * rate:
            data = next(datagrams)
            with suppress(OSError):  # a refusal of an earlier one
                sockets[sent % len(sockets)].sendto(data, address)
            sent += 1
            sent_bytes += len(data)
        received += sum(map(_received, sockets))
        time.sleep(_SLICE)
    received += sum(map(_received, sockets))
    for sock in sockets:
        sock.close()
    return {"sent": sent, "seconds": now, "sent_bytes": sent_bytes, "received_bytes": received}


if __name__ == "__main__":
    host, port, rate, seconds = sys.argv[1:]
    print(json.dumps(flood((host, int(port)), float(rate), float(seconds))))
