"""The gateway's end of the TLS connection for bulk answers: kept open beside QUIC."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Collection
from typing import Any, Protocol, cast

from quafka_loop import clock
from quafka_mesh_ops.broker_session import BrokerSession
from quafka_mesh_ops.bulk.carrier import LARGE_DATAGRAMS, BulkCarrier
from quafka_mesh_ops.bulk.chunks import OPENING, ChunkReader, encode_received
from quafka_mesh_ops.bulk.sockets import tune
from quafka_mesh_ops.bulk.tls import TlsPipe, check_certificate, encoded, tls_context
from quafka_mesh_ops.connector import BrokerConnector
from quafka_mesh_ops.errors import MeshError, OpFailedError, PeerRefusedError, ProtocolError
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.bulk import OpenBulk, OpenBulkResp
from quafka_mesh_ops.transport.udp import Address
from quafka_proto.errors import ErrorCode

logger = logging.getLogger("quafka.mesh.client")

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 15.0
_OPEN_SECONDS = 5.0
_ACKNOWLEDGE_BYTES = 1 << 20
_ACKNOWLEDGE_SECONDS = 0.02
"""Received bytes are acknowledged once they are this many or this old."""


class OpSender(Protocol):
    """Sends an op, as MeshClient.call."""

    def __call__(self, op: OpenBulk, *, org_id: int, deadline: float) -> Awaitable[OpenBulkResp]:
        """Return the answer. Raises MeshError."""
        ...


class BulkReceiver(asyncio.Protocol):
    """Receives the answers on one TLS connection.

    Attributes:
        ready: set once the broker has accepted the token.
        over: set to the reason once the connection has ended.
    """

    def __init__(self, pipe: TlsPipe, offer: OpenBulkResp, session: BrokerSession) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[str] = loop.create_future()
        self._pipe = pipe
        self._offer = offer
        self._session = session
        self._reader = ChunkReader()
        self._transport: asyncio.Transport | None = None
        self._acknowledged = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def received(self) -> int:
        """Bytes of answers so far."""
        return self._reader.received

    def close(self, reason: str) -> None:
        """Close the connection at once."""
        if self.over.done():
            return
        self.over.set_result(reason)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Name the offer and start the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        tune(self._transport)
        self._transport.write(OPENING + self._offer.name)
        self._pipe.begin()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.close(str(exc) if exc else "the broker closed it")

    def data_received(self, data: bytes) -> None:
        """Act on every frame that is complete."""
        if self.over.done():
            return
        began = self._pipe.established
        try:
            self._pipe.receive(data)
            if self._pipe.established and not began:
                self._pipe.write(self._offer.token)
            self._flush()
            for tag, payload in self._reader.read(self._pipe.read_into):
                self._session.bulk_frame(tag, payload)
        except (PeerRefusedError, ConnectionError) as e:
            self._flush()  # an alert, which names the reason for the broker
            self.close(str(e))
            return
        except ProtocolError as e:  # the broker itself has sent it
            self._session.refuse(str(e))
            return
        if self._reader.ready and not self.ready.done():
            self.ready.set_result(None)
        if self.received - self._acknowledged >= _ACKNOWLEDGE_BYTES:
            self._acknowledge()
        elif self.received != self._acknowledged and self._timer is None:
            self._timer = self._loop.call_later(_ACKNOWLEDGE_SECONDS, self._acknowledge_late)

    def _acknowledge_late(self) -> None:
        self._timer = None
        self._acknowledge()

    def _acknowledge(self) -> None:
        if self.received != self._acknowledged and not self.over.done():
            self._acknowledged = self.received
            self._pipe.write(encode_received(self.received))
            self._flush()

    def _flush(self) -> None:
        data = self._pipe.to_send()
        if data and self._transport is not None:
            self._transport.write(data)


class BulkLink:
    """Opens a TLS connection for each QUIC connection to a broker that offers one.

    It is opened again, with a growing delay, when it ends before the QUIC connection. Without it
    bulk answers travel over QUIC.
    """

    def __init__(
        self,
        connector: BrokerConnector,
        call: OpSender,
        identity: Identity,
        allowed: Collection[NodeId],
        carrier: BulkCarrier,
    ) -> None:
        self._auto = carrier is BulkCarrier.AUTO
        self._connector = connector
        self._call = call
        self._identity = identity
        self._allowed = allowed
        self._receiver: BulkReceiver | None = None
        self._received_before = 0
        self._last_reason = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether the broker may send bulk answers over TLS."""
        return self._receiver is not None

    @property
    def received(self) -> int:
        """Bytes of answers that arrived over TLS."""
        return self._received_before + (self._receiver.received if self._receiver else 0)

    def start(self) -> None:
        """Begin to connect, in the background."""
        self._task = asyncio.get_running_loop().create_task(self._keep_open())
        self._task.add_done_callback(_log_failure)

    async def close(self) -> None:
        """Close the connection and stop connecting."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_open(self) -> None:
        delay = 0.0
        while True:
            session = await self._connector.next_session()
            try:
                opened = await self._open(session)
            except (MeshError, OSError, TimeoutError) as e:
                opened = False
                if not session.over.done():
                    self._log(f"{e}" or type(e).__name__)
            delay = _FIRST_DELAY if opened else min(2 * delay or _FIRST_DELAY, _LONGEST_DELAY)
            # A new QUIC connection is worth an attempt at once.
            pause = delay * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            await asyncio.wait([session.over], timeout=pause)

    async def _open(self, session: BrokerSession) -> bool:
        """Hold one connection until it or its session ends; False: none was opened.

        Raises:
            MeshError, OSError, TimeoutError: none was opened.
        """
        offer = await self._ask(session)
        if offer is None:
            await asyncio.wait([session.over])
            return False
        receiver = await self._connect(session, *offer)

        def end(_over: asyncio.Future[str]) -> None:
            receiver.close("the QUIC connection is over")

        session.over.add_done_callback(end)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                both: list[asyncio.Future[Any]] = [receiver.ready, receiver.over]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if receiver.ready.done():
                logger.info("bulk answers of node %s arrive over TLS", session.peer[:16])
                self._last_reason = ""
                self._receiver = receiver
            reason = await asyncio.shield(receiver.over)
        finally:
            session.over.remove_done_callback(end)
            self._receiver = None
            self._received_before += receiver.received
            receiver.close("the gateway closes the connection")
        if not session.over.done():
            self._log(reason)
        return receiver.ready.done()

    async def _ask(self, session: BrokerSession) -> tuple[OpenBulkResp, TlsPipe] | None:
        """Ask for an offer. None: none is wanted, or made, on this QUIC connection.

        Raises:
            MeshError: no answer, or the broker's certificate is not acceptable.
        """
        if self._auto and session.connection.quic.largest_datagram >= LARGE_DATAGRAMS:
            return None
        ours = self._identity.certificate(clock.utc_now())
        op = OpenBulk(encoded(ours))
        try:
            offer = await self._call(op, org_id=1, deadline=_OPEN_SECONDS)
        except OpFailedError as e:
            if e.error_code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            self._log("the broker's version does not offer TLS")
            return None
        if not offer.name:
            self._log("the broker offers no TLS (mesh.bulk)")
            return None
        if self._connector.session is not session:
            raise PeerRefusedError("the QUIC connection has changed")
        check_certificate(offer.certificate, session.peer, self._allowed)
        context = tls_context(ours, offer.certificate, server_side=False)
        return offer, TlsPipe(context, offer.certificate, server_side=False)

    async def _connect(
        self, session: BrokerSession, offer: OpenBulkResp, pipe: TlsPipe
    ) -> BulkReceiver:
        """Connect to the address of the QUIC connection. Raises OSError, TimeoutError."""
        address = cast(Address, session.connection.quic.get_peer_address())
        async with asyncio.timeout(_OPEN_SECONDS):
            _, receiver = await asyncio.get_running_loop().create_connection(
                lambda: BulkReceiver(pipe, offer, session),
                str(address[0]),
                offer.port or self._connector.port,
            )
        return receiver

    def _log(self, reason: str) -> None:
        if reason != self._last_reason:
            self._last_reason = reason
            logger.log(
                logging.INFO if self._auto else logging.WARNING,
                "bulk answers of %s:%d arrive over QUIC: %s",
                self._connector.host, self._connector.port, reason,
            )  # fmt: skip


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the end of the task, which only a bug causes; bulk answers stay on QUIC after it."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("no further bulk connection will be made", exc_info=task.exception())
