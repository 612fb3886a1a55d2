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
from functools import partial
from typing import Any, cast

from quafka_loop import clock
from quafka_proto.message import Buffer

log = logging.getLogger("quafka.gateway.connection")

_RECEIVE, _RECEIVE_FIRST = 32 << 10, 8 << 10
"""Bytes read from a socket in one turn; the second while the cost of a client's records is unknown
or high. Bounds the time to decrypt them."""
_WINDOW = 16 << 10
_DEAREST = 200e-9
"""Seconds of CPU per byte, over a window, that records may cost. Full records cost 1 ns, records of
one byte 50 ns, and key updates without data (KeyUpdate, RFC 8446, 4.6.3) 350 ns: the protocol does
not limit those."""
_FREE = 512
"""Turns with fewer bytes are not judged."""
_RECORD = 16 << 10
_received = memoryview(bytearray(_RECEIVE))
_received_first = _received[:_RECEIVE_FIRST]
_plain = memoryview(bytearray(_RECEIVE + 2 * _RECORD))
"""Shared by all connections: a turn fills and empties them."""

_NOBODY = asyncio.Protocol()
"""Replaces an application that is gone, because the application refers to its transport, too."""


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
        self._buffer = _received_first
        self._window = 0  # bytes decrypted since the cost was judged
        self._spent = 0.0  # seconds of CPU that these took
        self._was_dear = False
        # With a buffer, `read` returns the number of bytes; its stub knows bytearrays only.
        self._read_into = cast("Callable[[int, memoryview], int]", tls.read)

    def begin(self) -> None:
        """Hand the connection to the application, with what arrived after the handshake."""
        self._application.connection_made(self)
        self._read()

    # --- asyncio.BufferedProtocol, for the socket -------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt what has arrived."""
        self._incoming.write(_received[:nbytes])
        self._read(nbytes)

    def eof_received(self) -> None:
        """The client has gone, with or without close_notify: close."""

    def pause_writing(self) -> None:
        """The socket is full."""
        self._application.pause_writing()

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._application.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        application, self._application = self._application, _NOBODY
        application.connection_lost(exc)

    def _read(self, arrived: int = 0) -> None:
        if self._closed or self._socket.is_closing():
            return
        decrypt = self._decrypt if arrived < _FREE else partial(self._decrypt_judged, arrived)
        count, ended, failure = decrypt()
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

    def _decrypt(self) -> tuple[int, bool, str]:
        """Decrypt all there is into `_plain`: return the number of bytes, whether the client has
        sent close_notify, and what is wrong."""
        incoming, count = self._incoming, 0
        while incoming.pending:
            try:
                size = self._read_into(len(_plain) - count, _plain[count:])
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as e:
                return count, False, e.reason or str(e)
            if not size:
                return count, True, ""
            count += size
        return count, False, ""

    def _decrypt_judged(self, arrived: int) -> tuple[int, bool, str]:
        """As `_decrypt`; also judge its cost in CPU time, which a busy machine does not raise."""
        began = clock.thread_time()
        count, ended, failure = self._decrypt()
        self._spent += clock.thread_time() - began
        self._window += arrived
        if self._window >= _WINDOW and self._is_too_dear():
            failure = "its records carry almost no data"
        return count, ended, failure

    def _is_too_dear(self) -> bool:
        """Judge a window: two too expensive ones in a row are no accident."""
        dear = self._spent > self._window * _DEAREST
        too_dear = dear and self._was_dear
        self._was_dear = dear
        self._buffer = _received_first if dear else _received
        self._window, self._spent = 0, 0.0
        return too_dear

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
        """Send close_notify, and close once all is sent."""
        if self._closed:
            return
        self._closed = True
        with suppress(ssl.SSLError):  # do not wait for the client's close_notify
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
