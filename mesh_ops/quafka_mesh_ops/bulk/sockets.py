"""The socket options of a bulk connection's TCP."""

from __future__ import annotations

import asyncio
import socket

_UNSENT = 512 << 10
"""Bytes that the kernel holds unsent: what is written later, but is urgent, waits for them."""
_IDLE, _INTERVAL, _PROBES = 5, 1, 3
"""Seconds until an idle connection is probed, and between probes; probes without an answer until it
is closed."""
_UNACKNOWLEDGED_MS = 5_000


def tune(transport: asyncio.Transport) -> None:
    """Detect a lost peer within seconds; hold little unsent data in the kernel."""
    sock: socket.socket = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_NOTSENT_LOWAT, _UNSENT),
        (socket.TCP_KEEPIDLE, _IDLE),
        (socket.TCP_KEEPINTVL, _INTERVAL),
        (socket.TCP_KEEPCNT, _PROBES),
        (socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
