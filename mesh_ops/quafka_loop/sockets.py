"""The sockets that the product opens itself; the event loop opens the others.

The sockets that `loop.create_server`, `loop.create_connection` and the streams of asyncio make
belong to the loop, which a simulation replaces, too.
"""

from __future__ import annotations

from socket import getaddrinfo, gethostname, socket

__all__ = ["getaddrinfo", "gethostname", "socket"]
