"""The broker's end of the mesh: accepts connections of allowed gateways."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from ipaddress import ip_address

from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.bulk.listener import BulkListener
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.gateway_session import GatewaySession, ServerParts
from quafka_mesh_ops.grants import Gatekeeper, Grant, everything
from quafka_mesh_ops.handlers import Handler
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.served_shards import DEFAULT_SHARD, ServedShards
from quafka_mesh_ops.transport.connection_limits import NodeConnectionLimits
from quafka_mesh_ops.transport.endpoint import HANDSHAKE_DEADLINE, QuicListener
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_mesh_ops.transport.silence import Silence
from quafka_telemetry.tracing import Tracer

logger = logging.getLogger("quafka.mesh.server")

_DRAIN_POLL = 0.005
_DRAIN_LOOK = 0.05  # an observation of a peer's silence counts for at most twice as long
_SILENT_SECONDS = 2.0
"""A draining broker stops waiting for a peer that has not even acknowledged for this long."""


class MeshServer:
    """Accepts mesh connections and runs their ops.

    Ops of one lane start in the order of their arrival, each up to its first await before the next
    starts. So do those of the control stream, except for fetches, which may have to wait until
    the peer has read earlier replies, and long ops, which are read in slices. A handler's
    OpFailedError is answered as its code, any other exception as UNKNOWN_SERVER_ERROR, a passed
    deadline as REQUEST_TIMED_OUT. A handler is cancelled when the caller cancels the op and when
    the connection is lost.

    `allowed` is read for each connection, `grants` for each op before its body is decoded: an op
    that the node may not send is answered with the error code of `rights.NEEDS`. `enforce`
    applies changes of both to open connections and running ops.
    """

    def __init__(
        self,
        identity: Identity,
        allowed: Collection[NodeId],
        handlers: Mapping[OpCode, Handler],
        tracer: Tracer,
        *,
        everywhere: Mapping[OpCode, Handler] | None = None,
        grants: Callable[[NodeId], Grant] = everything,
        datagram_size: int | None = None,
        batched: bool = True,
        bulk: BulkCarrier = BulkCarrier.QUIC,
        memory: bool = False,
        limits: NodeConnectionLimits | None = None,
        handshake_deadline: float = HANDSHAKE_DEADLINE,
    ) -> None:
        """`handlers`: those of shard 0; none: it is not here. See `ServedShards` for `everywhere`.

        `bulk`: whether to offer TLS connections for bulk replies, on the TCP port of the same
        number; AUTO: unless only this host can connect, and if the port is free.
        `memory`: take the memory of gateways on this host, for their large ops.
        `limits`: of the connections; without it they have the default values.
        """
        self.sessions: dict[GatewaySession, None] = {}  # in the order of their begins
        self.shards = ServedShards(everywhere or {}, {DEFAULT_SHARD: handlers} if handlers else {})
        """The shards that connections may be for."""
        self.gatekeeper = Gatekeeper(grants, logger)
        self._carrier = bulk
        self._bulk = None if bulk is BulkCarrier.QUIC else BulkListener(identity, allowed)
        parts = ServerParts(
            allowed=allowed,
            shards=self.shards,
            gatekeeper=self.gatekeeper,
            tracer=tracer,
            limited=LimitedLog(logger),
            sessions=self.sessions,
            connections=Counter(),
            bulk=self._bulk,
            memory=memory,
        )
        self._listener = QuicListener(
            identity,
            allowed,
            lambda connection, address: GatewaySession(parts, connection, address),
            limits=limits,
            datagram_size=datagram_size,
            batched=batched,
            handshake_deadline=handshake_deadline,
        )

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the bound address (port 0 requests any). Raises OSError."""
        address = self._listener.start(host, port)
        auto = self._carrier is BulkCarrier.AUTO
        if self._bulk is not None and not (auto and ip_address(address[0]).is_loopback):
            try:
                await self._bulk.start(host, address[1], any_port=port == 0)
            except OSError as e:
                if not auto:
                    self._listener.close()
                    raise
                logger.warning(
                    "no TLS for bulk answers: cannot listen on TCP port %d: %s",
                    address[1], e.strerror or e,
                )  # fmt: skip
        return address

    def counters(self) -> list[PeerCounters]:
        """Return the current figures of each connected gateway."""
        return [session.counters() for session in self.sessions]

    def first_packets(self) -> Mapping[str, int]:
        """Return the number of first packets from unknown peers, by outcome."""
        return self._listener.outcomes

    @property
    def limits(self) -> NodeConnectionLimits:
        """The number of connections, and their limits."""
        return self._listener.limits

    def enforce(self) -> None:
        """Close the connections of nodes that are no longer allowed; end ops likewise."""
        for session in list(self.sessions):
            session.enforce()

    async def close(self, drain: float) -> None:
        """Refuse new connections, let running ops end for up to `drain` seconds, then stop."""
        loop = asyncio.get_running_loop()
        self._listener.stop_accepting()
        if self._bulk is not None:
            self._bulk.stop_accepting()
        await self._drain(lambda _: True, loop.time() + drain, "the broker shuts down")
        self._listener.close()
        if self._bulk is not None:
            self._bulk.close()

    async def drain_shard(self, number: int, drain: float) -> None:
        """Refuse new connections for a shard, let its ops end for up to `drain` seconds, then
        close its connections, unless they are for other shards, too."""
        self.shards.remove(number)
        until = asyncio.get_running_loop().time() + drain

        def is_its_own(session: GatewaySession) -> bool:
            return session.shard == number and not session.several

        await asyncio.gather(
            self._drain(is_its_own, until, "the shard has moved"), self._drain_shared(number, until)
        )

    async def _drain_shared(self, shard: int, until: float) -> None:
        """Let the ops for a shard end where a connection is for other shards, too."""
        loop = asyncio.get_running_loop()
        silences: dict[GatewaySession, Silence] = {}
        for session in self.sessions:
            if session.has_among_others(shard):
                session.say_goodbye_for(shard)
                silences[session] = Silence(_DRAIN_LOOK, loop.time())
        while any(s.is_busy_with(shard) and not _is_silent(s, silences) for s in silences):
            if loop.time() >= until:
                break
            await asyncio.sleep(_DRAIN_POLL)
        left = [op for session in silences for op in session.end_shard(shard)]
        tasks = [op.task for op in left if op.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain(
        self, which: Callable[[GatewaySession], bool], until: float, reason: str
    ) -> None:
        loop = asyncio.get_running_loop()
        silences: dict[GatewaySession, Silence] = {}
        for session in filter(which, self.sessions):
            session.say_goodbye()
            silences[session] = Silence(_DRAIN_LOOK, loop.time())
        while any(s.busy and not _is_silent(s, silences) for s in filter(which, self.sessions)):
            if loop.time() >= until:
                break
            await asyncio.sleep(_DRAIN_POLL)
        left = list(filter(which, self.sessions))
        running = [op for session in left for op in session.running.values()]
        for session in left:
            session.connection.close(reason)
        tasks = [op.task for op in running if op.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_silent(session: GatewaySession, silences: Mapping[GatewaySession, Silence]) -> bool:
    """Whether the peer has been silent for a while."""
    silence = silences.get(session)
    if silence is None:
        return False
    now = asyncio.get_running_loop().time()
    return silence.observe(now, session.connection.last_received) > _SILENT_SECONDS
