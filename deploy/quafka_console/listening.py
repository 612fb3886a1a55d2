"""The console's listening socket."""

from __future__ import annotations

import errno
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET

from quafka_loop import sockets
from quafka_mesh_ops.settings import join_address, split_address
from quafka_telemetry.startup import StartupError


def listen(address: str, *, fallback: bool = False) -> sockets.socket:
    """Listen at host:port. `fallback`: at any free port if that one is in use.

    Raises:
        StartupError: the address cannot be used.
    """
    host, port = split_address(address)
    listening = sockets.socket(AF_INET6 if ":" in host else AF_INET, SOCK_STREAM)
    try:
        listening.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as e:
        listening.close()
        if fallback and e.errno == errno.EADDRINUSE and port:
            return listen(join_address(host, 0))
        raise StartupError(f"cannot listen on {address} (console.listen): {e.strerror}") from e
    return listening
