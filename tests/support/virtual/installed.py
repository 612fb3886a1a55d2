"""Puts a hub in the place of the real clocks, threads and sockets."""

from __future__ import annotations

import ssl
from collections.abc import Generator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

from aioquic import tls

from quafka_loop import clock, sockets
from quafka_loop import threads as product_threads
from tests.support.virtual import threads
from tests.support.virtual.hub import Hub
from tests.support.virtual.network import Network

_CLOCKS = {"thread_time": "cpu_time", "process_time": "cpu_time", "since_boot": "monotonic"}
"""The hub's names of clocks, where they are others."""
_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
_real_wrap_bio = ssl.SSLContext.wrap_bio


def _wrap_bio(context: ssl.SSLContext, *arguments: Any, **named: Any) -> ssl.SSLObject:
    """Have OpenSSL leave out the dates of certificates: it reads the machine's clock."""
    context.verify_flags |= _NO_CHECK_TIME
    return _real_wrap_bio(context, *arguments, **named)


@contextmanager
def installed(hub: Hub, net: Network) -> Generator[None]:
    """Product code runs on this hub and network until the end of the block."""
    with ExitStack() as stack:

        def put(module: ModuleType | type, name: str, value: Any) -> None:
            stack.enter_context(patch.object(module, name, value))

        for name in clock.__annotations__:  # all of them, also new ones
            put(clock, name, getattr(hub, _CLOCKS.get(name, name)))
        for name in product_threads.__all__:
            put(product_threads, name, getattr(threads, name))
        put(futures.Future, "result", threads.future_result)
        put(futures.Future, "exception", threads.future_exception)
        put(sockets, "socket", net.socket)
        put(sockets, "getaddrinfo", net.getaddrinfo)
        put(sockets, "gethostname", lambda: hub.node.name if hub.node is not None else "localhost")
        put(ssl.SSLContext, "wrap_bio", _wrap_bio)
        put(tls, "utcnow", clock.utc_now)
        threads.use(hub)
        stack.callback(threads.leave)
        yield
