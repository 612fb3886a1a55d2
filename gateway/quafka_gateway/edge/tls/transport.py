"""An asyncio transport over TLS, after the handshake.

asyncio's own keeps its buffers per connection and copies each write three times; this one has one
receive buffer for all connections, and passes each write through OpenSSL straight to the socket's
transport, whose write buffer is the only one. So limits of unread bytes hold for TLS as they do
without. See docs/adr/0050-listeners-and-tls.md for the figures.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from quafka_proto.message import Buffer

log = logging.getLogger("quafka.gateway.connection")

_RECEIVE = 32 << 10
"""Bytes read from a socket in one turn: bounds the time in which one client's records are
decrypted, however small they are."""
_RECORD = 16 << 10
_received = memoryview(bytearray(_RECEIVE))
_plain = memoryview(bytearray(_RECEIVE + 2 * _RECORD))
"""Shared by all connections: a turn fills and empties them."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The transport of an application's protocol, and the protocol of the socket's transport."""

    def __init__(
        self,
        socket: asyncio.Transport,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        application: asyncio.Protocol,
    ) -> None:
        """`tls` has finished its handshake; it reads `incoming` and writes `outgoing`."""
        super().__init__()
        self._socket = socket
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._application = application
        self._closed = False  # close() was called, or the client has closed its side
        # With a buffer, `read` returns the number of bytes; its stub knows bytearrays only.
        self._read_into = cast("Callable[[int, memoryview], int]", tls.read)

    def begin(self) -> None:
        """Hand the connection to the application, with what arrived after the handshake."""
        self._application.connection_made(self)
        self._read()

    # --- asyncio.BufferedProtocol, for the socket -------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt what has arrived."""
        self._incoming.write(_received[:nbytes])
        self._read()

    def eof_received(self) -> None:
        """The client has gone, without a farewell or after it: close."""

    def pause_writing(self) -> None:
        """The socket is full."""
        self._application.pause_writing()

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._application.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._application.connection_lost(exc)

    def _read(self) -> None:
        if self._closed or self._socket.is_closing():
            return
        incoming, count = self._incoming, 0
        failure = ""
        ended = False
        while incoming.pending:
            try:
                size = self._read_into(len(_plain) - count, _plain[count:])
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as e:
                failure = e.reason or str(e)
                break
            if not size:
                ended = True
                break
            count += size
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())  # new keys, or an alert
        if count:
            self._application.data_received(bytes(_plain[:count]))
        if failure:
            peer = self._socket.get_extra_info("peername") or ("?", 0)
            log.warning("closing %s:%s: TLS: %s", *peer[:2], failure)
            self._socket.close()
        elif ended:
            self.close()

    # --- asyncio.Transport, for the application ---------------------------------------------

    def write(self, data: Buffer) -> None:
        """Encrypt and send."""
        if self._closed or not data:
            return
        try:
            at = self._tls.write(data)
            while at < len(data):
                at += self._tls.write(memoryview(data)[at:])
        except ssl.SSLError:  # the session is broken: `_read` has logged why
            self._socket.abort()
            return
        self._socket.write(self._outgoing.read())

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Encrypt pieces together: each would take a record of its own."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Say that nothing follows (close_notify), and close once all is sent."""
        if self._closed:
            return
        self._closed = True
        with suppress(ssl.SSLError):  # the client's farewell has not come: nobody waits for it
            self._tls.unwrap()
        if not self._socket.is_closing():
            self._socket.write(self._outgoing.read())
            self._socket.close()

    def abort(self) -> None:
        """Close now."""
        self._closed = True
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closing or closed."""
        return self._closed or self._socket.is_closing()

    def pause_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._socket.resume_reading()

    def is_reading(self) -> bool:
        """See asyncio.ReadTransport."""
        return self._socket.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio.WriteTransport. The limits count encrypted bytes."""
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """See asyncio.WriteTransport. Encrypted bytes."""
        return self._socket.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """See asyncio.WriteTransport."""
        return self._socket.get_write_buffer_limits()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport; `ssl_object` is the session."""
        return self._tls if name == "ssl_object" else self._socket.get_extra_info(name, default)
