"""Ports for servers that are started later, or more than once."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path


def lasting_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A free port that can be bound later: the system gives it to nobody who asks for any."""
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, ephemeral)
        with socket.socket(socket.AF_INET, kind) as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
