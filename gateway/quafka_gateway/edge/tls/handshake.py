"""TLS handshakes: few at a time, in threads, within a deadline.

A handshake costs a millisecond of CPU or more: a signature, a key exchange, the verification of a
client's certificate. OpenSSL holds no lock of the interpreter for that, so connected clients are
served meanwhile. The number of sockets in handshakes is limited (`Unauthenticated`), so the queue
of the threads is, too.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from typing import cast

from quafka_gateway.edge.tls.contexts import TlsContext
from quafka_gateway.edge.tls.records import HandshakeRecords, NotTlsError
from quafka_gateway.edge.tls.transport import TlsTransport
from quafka_gateway.principal_rules import NoRuleError
from quafka_gateway.security.sasl.limits import Unauthenticated
from quafka_loop import threads
from quafka_mesh_ops.transport.log_limit import LimitedLog

log = logging.getLogger("quafka.gateway.tls")

FAILURES = ("not_tls", "handshake", "certificate", "name", "timeout", "internal")
"""Why handshakes fail, in few words, for metrics."""
_REFUSALS = ("certificate", "name")
_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
_THREADS = 2
_READ_SECONDS = 0.1
"""How long a refused client's bytes are read and dropped, so that it reads why it is refused."""
_received = memoryview(bytearray(16 << 10))
"""Shared by all connections: a turn fills and empties it."""

Accept = Callable[[str], asyncio.Protocol]
"""Makes the protocol of a client with this name from its certificate; "": it has none."""


class Handshakes:
    """The handshakes of all listeners.

    Attributes:
        finished: those that succeeded, by version of TLS.
        failed: those that failed by reason.
        refused: called with the listener, the address and the reason if a client is refused for its
            certificate.
        endings: logs why connections end, a few lines a second.
    """

    def __init__(self, unauthenticated: Unauthenticated, timeout: float) -> None:
        self.finished: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.refused: Callable[[str, str, str], None] = _unheard
        self.unauthenticated = unauthenticated
        self.timeout = timeout
        self.endings = LimitedLog(log)
        self._threads = threads.ThreadPoolExecutor(_THREADS, "tls-handshake")
        self._open: dict[TlsHandshake, None] = {}
        self._serial = 0

    def begin(self, handshake: TlsHandshake, host: str) -> int:
        """Count a handshake; return its number."""
        self._serial += 1
        self._open[handshake] = None
        self.unauthenticated.open(host, -self._serial, handshake.close)
        return self._serial

    def end(self, handshake: TlsHandshake, host: str, serial: int) -> None:
        """It has finished or failed. May be called again."""
        self._open.pop(handshake, None)
        self.unauthenticated.remove(host, -serial)

    def run(self, step: Callable[[], str | None]) -> asyncio.Future[str | None]:
        """Run a step in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._threads, step)

    def close(self) -> None:
        """Abandon all handshakes."""
        for each in list(self._open):
            each.close("the gateway stops")
        self._threads.shutdown(wait=False, cancel_futures=True)


class TlsHandshake(asyncio.BufferedProtocol):
    """One handshake; then a `TlsTransport` takes its place."""

    # Set by `connection_made`, which asyncio calls first.
    _socket: asyncio.Transport
    _deadline: asyncio.TimerHandle

    def __init__(self, handshakes: Handshakes, tls: TlsContext, accept: Accept) -> None:
        self._handshakes = handshakes
        self._context = tls
        self._accept = accept
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session: ssl.SSLObject | None = None  # made when a whole record is there
        self._records = HandshakeRecords()
        self._host = "?"
        self._port = 0
        self._serial = 0
        self._over = False
        self._end: asyncio.TimerHandle | None = None

    # --- asyncio.BufferedProtocol -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's first bytes."""
        self._socket = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self._host, self._port = str(peer[0]), int(peer[1])
        self._deadline = asyncio.get_running_loop().call_later(self._handshakes.timeout, self._late)
        self._serial = self._handshakes.begin(self, self._host)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        """Continue once a record is whole; read no more until that has been done."""
        if self._over:
            return
        try:
            records = self._records.feed(bytes(_received[:nbytes]))
        except NotTlsError as e:
            self._fail(str(e), "not_tls")
            return
        if records:
            self._socket.pause_reading()
            self._incoming.write(records)
            self._handshakes.run(self._step).add_done_callback(self._stepped)

    def eof_received(self) -> None:
        """The client has gone: close."""

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._over = True
        self._deadline.cancel()
        if self._end is not None:
            self._end.cancel()
        self._handshakes.end(self, self._host, self._serial)

    # --- the handshake ----------------------------------------------------------------------

    def _step(self) -> str | None:
        """Continue, in a thread: return the client's name at the end, None before it."""
        session = self._session
        if session is None:
            wrap = self._context.context.wrap_bio
            session = self._session = wrap(self._incoming, self._outgoing, server_side=True)
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            return None
        return self._context.peer_name(session)

    def _stepped(self, step: asyncio.Future[str | None]) -> None:
        if self._over or step.cancelled():
            return
        answers = self._outgoing.pending
        if answers:
            self._socket.write(self._outgoing.read())  # an alert, if the step has failed
        error = step.exception()
        if error is not None:
            self._fail(*_described(error), alerted=bool(answers))
            return
        name = step.result()
        if name is None:
            self._socket.resume_reading()
        else:
            self._finish(name)

    def _finish(self, name: str) -> None:
        session = self._session
        assert session is not None, "it has finished"
        self._over = True
        self._deadline.cancel()
        self._handshakes.end(self, self._host, self._serial)
        self._handshakes.finished[session.version() or ""] += 1
        self._incoming.write(self._records.rest)
        application = self._accept(name)
        transport = TlsTransport(self._socket, session, self._incoming, self._outgoing, application)
        self._socket.set_protocol(transport)
        self._socket.resume_reading()
        transport.begin()

    # --- its end ----------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Abandon the handshake."""
        self._log(reason)
        self._over = True
        self._socket.abort()

    def _late(self) -> None:
        if not self._over:
            self._handshakes.failed["timeout"] += 1
            self._log("the TLS handshake takes too long")
            self._over = True
        self._socket.abort()

    def _fail(self, reason: str, kind: str, *, alerted: bool = False) -> None:
        """Close, after an alert a moment later; the deadline holds for that, too.

        In TLS 1.3 a client sends requests before it learns that its certificate is refused. A close
        with unread bytes would reset the connection, and the alert would be lost: Kafka's clients
        would try again instead of reporting it.
        """
        self._handshakes.failed[kind] += 1
        self._log(reason)
        if kind in _REFUSALS:
            self._handshakes.refused(self._context.name, self._host, reason)
        self._over = True
        if not alerted:
            self._socket.close()
            return
        self._socket.resume_reading()
        self._end = asyncio.get_running_loop().call_later(_READ_SECONDS, self._socket.close)

    def _log(self, reason: str) -> None:
        self._handshakes.endings.warning(
            reason, "closing %s:%d: %s", self._host, self._port, reason
        )


def _unheard(_listener: str, _host: str, _reason: str) -> None:
    """Nobody listens to refusals."""


def _described(error: BaseException) -> tuple[str, str]:
    """Why a handshake failed: for the log, and in a few words for the metric."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate: {error.verify_message}", "certificate"
    if isinstance(error, ssl.SSLError) and error.reason == _NO_CERTIFICATE:
        return "the client shows no certificate", "certificate"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed: {error.reason or error}", "handshake"
    if isinstance(error, (NoRuleError, ValueError)):
        return f"the client's certificate: {error}", "name"
    log.error("a TLS handshake failed", exc_info=error)
    return "internal error", "internal"
