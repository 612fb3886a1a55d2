"""Authenticates the client of a connection by SASL, before its other requests are read.

`SaslExchange` is the exchange itself, first or repeated. `FirstAuthentication` holds the bytes of a
connection until the first exchange has succeeded: it cuts one frame at a time, and later bytes
wait. `SessionGate` stands before the requests of an authenticated connection and lets it
authenticate again (KIP-368).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from functools import partial
from math import inf
from typing import NamedTuple

from quafka_gateway.context import RequestContext, Services
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.edge.framing import bad_length
from quafka_gateway.edge.response_writer import ResponseWriter
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.listeners import KafkaListener
from quafka_gateway.memory import HeldRequests
from quafka_gateway.security.sasl.authenticator import (
    HANDSHAKE_KEY,
    Authenticator,
    LoginOffer,
    Previous,
    Step,
)
from quafka_gateway.security.sasl.logins import Login
from quafka_gateway.security.sasl.mechanism import Account, BusyError
from quafka_gateway.security.sasl.service import SaslService
from quafka_gateway.security.session import ClientSession
from quafka_loop.eager_task import EagerTask
from quafka_loop.garbage import ignore
from quafka_proto.headers import RequestHeader
from quafka_proto.message import Buffer, Message
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_telemetry.tracing import NO_SPAN

log = logging.getLogger("quafka.gateway.connection")

_LENGTH = struct.Struct(">i")
_MOST_FRAMES = 16
"""Frames of one authentication: each mechanism needs five at most."""
_HANDSHAKE = HANDSHAKE_KEY.to_bytes(2)
_READ_SECONDS = 0.1
"""The time that a refused client has to read the answer before its connection ends."""
_SECONDS_BETWEEN = 1.0
"""Kafka's least time between two re-authentications of a connection."""
_EXPIRED_SECONDS = 5.0
"""How long an idle connection may outlive its session, while it might authenticate again."""


class SaslConnection(NamedTuple):
    """What an exchange needs to know of its connection.

    Attributes:
        close: closes the connection at once, with a reason for the log.
        finish: closes it when all that was written is sent.
    """

    services: Services
    sasl: SaslService
    versions: AnyApi
    listener: KafkaListener
    client: ConnectedClient
    session: ClientSession
    writer: ResponseWriter
    close: Callable[[str], None]
    finish: Callable[[], None]


class SaslExchange:
    """One authentication: takes and answers one frame at a time until it succeeds or fails."""

    def __init__(
        self,
        connection: SaslConnection,
        admit: Callable[[str, Account, float], str],
        ended: Callable[[], None],
        advanced: Callable[[], None],
        previous: Previous | None = None,
    ) -> None:
        """`admit` is called with the mechanism, the account and the loop time of its end, before
        the client learns of it, and returns why the account is refused, or "". `ended` is called
        after the client has its answer, `advanced` when the next frame may be taken."""
        self._connection = connection
        self._admit = admit
        self._ended = ended
        self._advanced = advanced
        self._loop = asyncio.get_running_loop()
        sasl, listener = connection.sasl, connection.listener
        versions = partial(_versions, connection)
        offer = LoginOffer(sasl.mechanisms(listener.org), versions, sasl.lifetime)
        self._authenticator = Authenticator(offer, previous)
        self._task: EagerTask[None] | None = None
        self._delay: asyncio.TimerHandle | None = None
        self._closed = False
        self.failed = False
        """Whether the client was refused; its connection will be closed."""

    @property
    def busy(self) -> bool:
        """Whether the next frame must wait."""
        return self._closed or (self._task is not None and not self._task.done())

    def take(self, frame: bytes) -> None:
        """Take the next frame; `busy` must be false."""
        self._task = EagerTask(self._take(frame), self._loop)

    def fail(self, reason: str, user: str = "", response: list[Buffer] | None = None) -> None:
        """Refuse the client: answer and close when the delay is over (KIP-306)."""
        connection, mechanism = self._connection, self._authenticator.mechanism
        sasl, client = connection.sasl, connection.client
        sasl.count(mechanism, success=False)
        sasl.failures.count(client.host, self._loop.time())
        connection.services.audit.login_refused(
            connection.listener.name, mechanism, user, client.kafka_host, reason
        )
        who = f" as {user[:255]!r}" if user else ""
        log.info("%s has not authenticated%s: %s", client, who, reason)
        self.failed = self._closed = True
        self._delay = self._loop.call_later(sasl.settings.delay, self._refuse, response)

    def close(self) -> None:
        """The connection is gone, or has authenticated."""
        self._closed = True
        self._ended = self._advanced = ignore
        if self._delay is not None:
            self._delay.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _take(self, frame: bytes) -> None:
        try:
            step = await self._authenticator.receive(frame)
        except BusyError as e:
            self._connection.close(str(e))  # clients retry a lost connection, not an error
            return
        except Exception:
            log.exception("authenticating %s failed", self._connection.client)
            self._connection.close("internal error")
            return
        if self._closed:
            return
        if step.failure:
            self.fail(step.failure, step.user, step.response)
        elif step.account is None:
            self._connection.writer.write(step.response)
            self._loop.call_soon(self._advanced)  # this frame's task ends first
        else:
            self._succeed(step, step.account)

    def _succeed(self, step: Step, account: Account) -> None:
        connection, mechanism = self._connection, self._authenticator.mechanism
        ends = inf if step.lifetime is None else self._loop.time() + step.lifetime
        refusal = self._admit(mechanism, account, ends)
        if refusal:
            connection.close(refusal)
            return
        connection.sasl.count(mechanism, success=True)
        connection.services.audit.login(connection.session, connection.client.kafka_host)
        log.info(
            "%s has authenticated as %s of org %d by %s", connection.client,
            connection.session.principal, account.org_id, mechanism,
        )  # fmt: skip
        self._closed = True
        connection.writer.write(step.response)
        self._loop.call_soon(self._ended)

    def _refuse(self, response: list[Buffer] | None) -> None:
        if not response:
            self._connection.finish()
            return
        self._connection.writer.write(response)
        # kafka-python drops an answer that it reads together with the end of the connection.
        self._delay = self._loop.call_later(_READ_SECONDS, self._connection.finish)


async def _versions(
    connection: SaslConnection, header: RequestHeader, request: ApiVersionsRequest | None
) -> Message:
    """Answer ApiVersions, which needs no authentication."""
    api = connection.versions
    assert api.unknown_version is not None, "ApiVersions has one"
    context = RequestContext(
        connection.services,
        connection.session,
        header.api_version,
        header.client_id,
        connection.client.serial,
        NO_SPAN,
        connection.client.kafka_host,
        header.correlation_id,
    )
    response = await api.handle(request or api.unknown_version(), context)
    assert isinstance(response, Message)
    return response


class FirstAuthentication:
    """The bytes of a connection until its client has authenticated."""

    def __init__(
        self,
        connection: SaslConnection,
        held: HeldRequests,
        admit: Callable[[str, Account, float], str],
        ended: Callable[[bytes], None],
        balance: Callable[[], None],
    ) -> None:
        """`admit`: see SaslExchange. `ended` is called with the bytes behind the exchange,
        `balance` when the connection may have to be read from again."""
        self._connection = connection
        self._held = held
        self._ended = ended
        self._balance = balance
        self._limit = connection.sasl.settings.receive_bytes
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._frames = 0
        self._exchange = SaslExchange(connection, admit, self._end, self.run)
        self._deadline = self._loop.call_later(connection.sasl.settings.timeout, self._late)
        client = connection.client
        connection.sasl.unauthenticated.open(client.host, client.serial, connection.close)

    @property
    def full(self) -> bool:
        """Whether no more bytes may be read: a frame is there that must wait."""
        return len(self._buffer) > self._limit and not self._exchange.failed

    def feed(self, data: bytes) -> None:
        """Add the bytes that arrived."""
        if self._exchange.failed:
            return  # read and dropped, so that the answer is not lost to a reset
        is_new = not self._buffer
        self._buffer += data
        self._held.hold_partial(len(self._buffer), self._loop.time(), is_new=is_new)
        self.run()

    def run(self) -> None:
        """Take the frames that may be taken."""
        while not self._exchange.busy and self._connection.writer.ready:
            frame = self._next_frame()
            if frame is None:
                break
            self._frames += 1
            if self._frames > _MOST_FRAMES:
                self._exchange.fail("too many requests before authentication")
            else:
                self._exchange.take(frame)
        self._balance()

    def close(self) -> None:
        """The connection is gone, or has authenticated."""
        self._deadline.cancel()
        self._exchange.close()
        self._buffer = b""
        client = self._connection.client
        self._connection.sasl.unauthenticated.remove(client.host, client.serial)

    def _next_frame(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        end = _LENGTH.size + length
        if not 0 < length <= self._limit:
            self._exchange.fail(str(bad_length(self._buffer[: _LENGTH.size], self._limit)))
            self._drop(len(self._buffer))
            return None
        if len(self._buffer) < end:
            return None
        frame = self._buffer[_LENGTH.size : end]
        self._drop(end)
        return frame

    def _drop(self, size: int) -> None:
        self._buffer = self._buffer[size:]
        self._held.hold_partial(len(self._buffer), self._loop.time(), is_new=True)

    def _end(self) -> None:
        rest = self._buffer
        self._drop(len(rest))
        self.close()
        self._ended(rest)

    def _late(self) -> None:
        self._connection.close("it has not authenticated within connection.authentication.timeout")


class SessionGate:
    """Lets a connection authenticate again, and lets no request pass after its session.

    Attributes:
        takes: after `passes` was False: whether `take` must be called with the frame.
    """

    __slots__ = ("_began", "_connection", "_exchange", "_login", "_loop", "_proceed", "takes")

    def __init__(self, connection: SaslConnection, proceed: Callable[[], None]) -> None:
        """`proceed` is called when a frame that had to wait may be offered again."""
        self._connection = connection
        self._proceed = proceed
        self._loop = asyncio.get_running_loop()
        self._exchange: SaslExchange | None = None
        self._began = -inf
        self._login: Login | None = None
        self.takes = False

    def passes(self, frame: bytes, *, idle: bool) -> bool:
        """Whether a frame is an ordinary request. `idle`: no request is in flight."""
        if self._exchange is not None:
            self.takes = not self._exchange.busy
            return False
        expires_at = self._connection.session.expires_at
        if expires_at == inf:
            return True
        now = self._loop.time()
        if frame[:2] == _HANDSHAKE and now - self._began >= _SECONDS_BETWEEN:
            self.takes = idle
            return False
        self.takes = False
        if now < expires_at:
            return True
        self.expire()
        return False

    def take(self, frame: bytes) -> None:
        """Take a frame of a re-authentication."""
        if self._exchange is None:
            self._began = self._loop.time()
            session = self._connection.session
            name = Previous(session.mechanism, session.tenant.org_id, session.principal.name)
            self._exchange = SaslExchange(
                self._connection, self.admit, self._end, self._proceed, name
            )
        if len(frame) > self._connection.sasl.settings.receive_bytes:
            self._exchange.fail("a long frame in a re-authentication")
        else:
            self._exchange.take(frame)

    def admit(self, mechanism: str, account: Account, expires_at: float) -> str:
        """Begin or renew the session of an account. Never refuses."""
        session, logins = self._connection.session, self._connection.sasl.logins
        session.mechanism, session.expires_at = mechanism, expires_at
        self._forget()
        self._login = Login(account, self._connection.close)
        logins.add(self._login)
        return ""

    def expired(self, now: float) -> bool:
        """Whether the session has ended some time ago."""
        return now > self._connection.session.expires_at + _EXPIRED_SECONDS

    def expire(self) -> None:
        """Close the connection: its session has ended."""
        self._connection.sasl.expired += 1
        self._connection.close("its session ended without another authentication")

    def close(self) -> None:
        """The connection is gone."""
        self._forget()
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    def _end(self) -> None:
        self._exchange = None
        self._proceed()

    def _forget(self) -> None:
        if self._login is not None:
            self._connection.sasl.logins.remove(self._login)
            self._login = None
