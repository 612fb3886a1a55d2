"""Opens connections: `dial` makes one, a `QuicListener` accepts many on one socket."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from cryptography import x509

from quafka_loop import clock, sockets
from quafka_mesh_ops.identity import Identity, verify_peer
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.transport.admission import Host, SlotKind, host_of
from quafka_mesh_ops.transport.aioquic_adapter.mutual_tls import VerifyPeer, quic_configuration
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_mesh_ops.transport.aioquic_adapter.quic_class import quic_class
from quafka_mesh_ops.transport.connection import ConnectionUser, QuicSocketConnection
from quafka_mesh_ops.transport.connection_limits import NodeConnectionLimits
from quafka_mesh_ops.transport.initial import destination_of
from quafka_mesh_ops.transport.ladder import FLOOR, RUNGS, DatagramLadder, largest
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_mesh_ops.transport.stateless_reset import stateless_reset
from quafka_mesh_ops.transport.strangers import Strangers, Welcome
from quafka_mesh_ops.transport.udp import Address, UdpSocket, bind_udp, route_mtu

logger = logging.getLogger("quafka.mesh")

HANDSHAKE_DEADLINE = 5.0
_PRESSURE_LOGGED_EVERY = 60.0
_MAX_POSTPONED = 8
"""How often datagrams of one connection may be postponed; its peer sends again what is dropped."""
_HANDSHAKE_SECONDS = 0.003
"""Time for handshakes in each turn of the loop."""

_CID_LENGTH = 8
_LONG_HEADER = 0x80


def checker(allowed: Collection[NodeId]) -> VerifyPeer:
    """Return a check of certificates against the current content of an allow-list."""

    def verify(certificate: x509.Certificate | None) -> NodeId:
        return verify_peer(certificate, clock.utc_now(), allowed)

    return verify


async def dial(
    host: str,
    port: int,
    identity: Identity,
    allowed: Collection[NodeId],
    make_user: Callable[[QuicSocketConnection], ConnectionUser],
    *,
    datagram_size: int | None = None,
    batched: bool = True,
) -> QuicSocketConnection:
    """Start to connect; the user receives the result. The socket lives as long as the connection.

    Without a `datagram_size` the path is probed for the largest size. Raises OSError
    if the name cannot be resolved or the address cannot be used.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, _, _, _, address = found[0]
    sock = sockets.socket(family, socket.SOCK_DGRAM)
    try:
        # A connected socket reports a closed port (ECONNREFUSED) and receives from its peer only.
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    ladder = _ladder(datagram_size, lambda: _largest(sock))
    configuration = quic_configuration(
        identity, clock.utc_now(), is_client=True, datagram_size=ladder.size
    )
    quic = quic_class(batched)(configuration, checker(allowed), ladder=ladder)
    return _Dialled(sock, address, quic, make_user).connection


class _Dialled:
    """A connection with a socket of its own."""

    def __init__(
        self,
        sock: socket.socket,
        address: Address,
        quic: MeshQuic,
        make_user: Callable[[QuicSocketConnection], ConnectionUser],
    ) -> None:
        self._udp = UdpSocket(sock, self._received, self._writable, self._failed, peer=address)
        self.connection = QuicSocketConnection(quic, self._udp, make_user, self)
        self.connection.connect(address)

    def refusal(self, connection: QuicSocketConnection, peer: NodeId) -> str | None:
        """Refuses none: the peer is the one that was dialled."""
        return None

    def cid_issued(self, cid: bytes, connection: QuicSocketConnection) -> None:
        """Does nothing: all datagrams on this socket are the connection's."""

    def cid_retired(self, cid: bytes) -> None:
        """See `cid_issued`."""

    def terminated(self, connection: QuicSocketConnection) -> None:
        """Close the socket."""
        self._udp.close()

    def _received(self, datagrams: list[bytes], address: Address) -> None:
        self.connection.receive(datagrams, address)

    def _writable(self) -> None:
        self.connection.resume()

    def _failed(self, error: OSError, address: Address) -> None:
        if error.errno == errno.EMSGSIZE:
            self.connection.too_large()
        else:
            self.connection.abort(error.strerror or str(error))


class _Handshake(NamedTuple):
    """The handshake of a connection whose peer is not authenticated yet."""

    timer: asyncio.TimerHandle
    kind: SlotKind
    host: Host


class QuicListener:
    """Accepts connections from allowed peers on one UDP socket.

    `make_user(connection, address)` makes the user of a new connection. Until the peer is
    authenticated and allowed, only `connection_closed` is called on it.
    """

    def __init__(
        self,
        identity: Identity,
        allowed: Collection[NodeId],
        make_user: Callable[[QuicSocketConnection, Address], ConnectionUser],
        *,
        limits: NodeConnectionLimits | None = None,
        datagram_size: int | None = None,
        batched: bool = True,
        handshake_deadline: float = HANDSHAKE_DEADLINE,
    ) -> None:
        self.limits = limits or NodeConnectionLimits(allowed)
        self._identity = identity
        self._verify = checker(allowed)
        self._make_user = make_user
        self._datagram_size = datagram_size
        self._quic_class = quic_class(batched)
        self._handshake_deadline = handshake_deadline
        self._cids: dict[bytes, QuicSocketConnection] = {}
        self._connections: dict[QuicSocketConnection, set[bytes]] = {}
        self._handshakes: dict[QuicSocketConnection, _Handshake] = {}
        self._postponed: deque[tuple[QuicSocketConnection, list[bytes], Address]] = deque()
        self._postponed_of: Counter[QuicSocketConnection] = Counter()
        self._admitted: dict[QuicSocketConnection, NodeId] = {}
        """The connections that `limits` counts, until they need no more datagrams."""
        self._reset_secret = identity.secret("stateless reset")
        self._strangers = Strangers(identity.secret("retry tokens"))
        self._limited = LimitedLog(logger)
        self._pressure = LimitedLog(logger, _PRESSURE_LOGGED_EVERY)
        self._full = LimitedLog(logger, _PRESSURE_LOGGED_EVERY)
        self._loop = asyncio.get_running_loop()
        self._udp: UdpSocket | None = None
        self._accepting = True

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Bind and listen; returns the bound address. Raises OSError."""
        self._udp = UdpSocket(bind_udp(host, port), self._received, self._writable, self._failed)
        address = self._udp.address
        return address[0], address[1]

    @property
    def outcomes(self) -> Mapping[str, int]:
        """The number of first packets from unknown peers, by outcome."""
        return self._strangers.outcomes

    def stop_accepting(self) -> None:
        """Ignore new connections from now on; open ones continue."""
        self._accepting = False

    def close(self) -> None:
        """Close the socket; open connections end without a close frame."""
        for connection in list(self._connections):
            connection.abort("the listener was closed")
        if self._udp is not None:
            self._udp.close()

    # --- CidRouter --------------------------------------------------------------------------

    def refusal(self, connection: QuicSocketConnection, peer: NodeId) -> str | None:
        """See CidRouter: refuse a connection above the limits."""
        reason = self.limits.admit(peer)
        if reason is None:
            self._admitted[connection] = peer
        else:
            self._full.warning(reason + peer, "refused node %s: %s", peer[:16], reason)
        return reason

    def cid_issued(self, cid: bytes, connection: QuicSocketConnection) -> None:
        """See CidRouter."""
        self._cids[cid] = connection
        self._connections[connection].add(cid)

    def cid_retired(self, cid: bytes) -> None:
        """See CidRouter."""
        connection = self._cids.pop(cid, None)
        if connection is not None:
            self._connections[connection].discard(cid)

    def terminated(self, connection: QuicSocketConnection) -> None:
        """Remove the connection and its ids."""
        node = self._admitted.pop(connection, None)
        if node is not None:
            self.limits.release(node)
        for cid in self._connections.pop(connection, ()):
            del self._cids[cid]
        self._handshake_over(connection)

    # --- the socket -------------------------------------------------------------------------

    def _received(self, datagrams: list[bytes], address: Address) -> None:
        # The datagrams of one system call have one sender, but may belong to two connections.
        start = 0
        while start < len(datagrams):
            first = datagrams[start]
            end = start + 1
            if first and first[0] & _LONG_HEADER:
                self._received_long_header(first, address)
            else:
                cid = first[1 : 1 + _CID_LENGTH]
                while end < len(datagrams) and _continues(datagrams[end], cid):
                    end += 1
                connection = self._cids.get(cid)
                if connection is None:
                    self._unknown_connection(cid, len(first), address)
                elif connection in self._postponed_of:
                    self._postpone(connection, datagrams[start:end], address)
                else:
                    connection.receive(datagrams[start:end], address)
            start = end

    def _unknown_connection(self, cid: bytes, size: int, address: Address) -> None:
        """Reset a connection of a past run of this node (RFC 9000 section 10.3)."""
        assert self._udp is not None
        if self._strangers.admission.may_answer(host_of(address), self._loop.time()):
            reset = stateless_reset(self._reset_secret, cid, size)
            if reset is not None:
                self._udp.send_or_drop(reset, address)

    def _received_long_header(self, data: bytes, address: Address) -> None:
        """Process a handshake packet, or the first one of an unknown peer (RFC 9000, 5.2.2)."""
        connection = self._cids.get(destination_of(data))
        if connection is None:
            if self._accepting:
                self._stranger(data, address)
        elif connection in self._handshakes:
            self._postpone(connection, [data], address)
        else:
            self._feed(connection, [data], address)

    def _postpone(
        self, connection: QuicSocketConnection, datagrams: list[bytes], address: Address
    ) -> None:
        """Process datagrams of a handshake soon, and those that follow them after them.

        Each takes a millisecond of cryptography, for which open connections do not wait.
        """
        if self._postponed_of[connection] < _MAX_POSTPONED:
            self._postponed_of[connection] += 1
            self._postponed.append((connection, datagrams, address))
            if len(self._postponed) == 1:
                self._loop.call_soon(self._continue_handshakes)

    def _continue_handshakes(self) -> None:
        until = clock.perf_counter() + _HANDSHAKE_SECONDS
        try:
            while self._postponed and clock.perf_counter() < until:
                connection, datagrams, address = self._postponed.popleft()
                self._postponed_of[connection] -= 1
                if not self._postponed_of[connection]:
                    del self._postponed_of[connection]
                if connection in self._connections:
                    self._feed(connection, datagrams, address)
        finally:  # also after an error with one connection
            if self._postponed:
                self._loop.call_soon(self._continue_handshakes)

    def _feed(
        self, connection: QuicSocketConnection, datagrams: list[bytes], address: Address
    ) -> None:
        connection.receive(datagrams, address)
        if not connection.is_over and not connection.quic.is_open:
            self._strangers.outcomes["unreadable"] += 1
            connection.abort("its first packet could not be opened")
        if connection.is_ready and connection in self._handshakes:
            self._strangers.admission.remember(host_of(address), self._loop.time())
            self._handshake_over(connection)
        refusal = connection.quic.refusal
        if refusal is not None:
            reason = str(refusal).partition(":")[0]
            self._limited.warning(reason, "refused %s: %s", address[0], refusal)
            connection.quic.refusal = None  # logged once, however often the peer sends again

    def _stranger(self, data: bytes, address: Address) -> None:
        assert self._udp is not None
        found = self._strangers.arrived(data, address, self._loop.time(), clock.time())
        if found is None:
            return
        if not isinstance(found, Welcome):
            self._udp.send_or_drop(found, address)
            if self._strangers.outcomes["retried"]:
                self._pressure.warning(
                    "retry",
                    "many connections start at once: senders must prove their addresses (%d so "
                    "far had to), which costs a gateway one round trip",
                    self._strangers.outcomes["retried"],
                )
            return
        connection = self._new_connection(found, len(data), address)
        self._postpone(connection, [data], address)

    def _new_connection(
        self, welcome: Welcome, size: int, address: Address
    ) -> QuicSocketConnection:
        assert self._udp is not None
        # A client pads its first datagram to its full size. A size above the floor was configured.
        fixed = self._datagram_size or (min(size, RUNGS[0]) if size > FLOOR else None)
        ladder = _ladder(fixed, lambda: _largest_to(address))
        configuration = quic_configuration(
            self._identity, clock.utc_now(), is_client=False, datagram_size=ladder.size
        )
        quic = self._quic_class(
            configuration,
            self._verify,
            original_destination_connection_id=welcome.original_cid,
            reset_secret=self._reset_secret,
            ladder=ladder,
            retry_cid=welcome.retry_cid,
        )
        connection = QuicSocketConnection(
            quic, self._udp, lambda connection: self._make_user(connection, address), self
        )
        self._connections[connection] = set()
        self.cid_issued(welcome.cid, connection)
        self.cid_issued(quic.host_cid, connection)
        timer = self._loop.call_later(
            self._handshake_deadline, connection.abort, "the handshake took too long"
        )
        self._handshakes[connection] = _Handshake(timer, welcome.kind, host_of(address))
        return connection

    def _handshake_over(self, connection: QuicSocketConnection) -> None:
        """Release the slot of a handshake. A refused peer holds it until its connection ends."""
        handshake = self._handshakes.pop(connection, None)
        if handshake is not None:
            handshake.timer.cancel()
            self._strangers.admission.release(handshake.kind, handshake.host)

    def _writable(self) -> None:
        for connection in list(self._connections):
            if connection.quic.is_open:
                connection.resume()

    def _failed(self, error: OSError, address: Address) -> None:
        # One whose first datagram is postponed has no address yet, nor has an error sometimes.
        concerned = [
            c for c in self._connections if address and c.quic.get_peer_address() == address
        ]
        if not concerned or error.errno not in (errno.ECONNREFUSED, errno.EMSGSIZE):
            self._limited.warning(str(error.errno), "mesh socket error: %s", error.strerror)
            return
        for connection in concerned:
            if error.errno == errno.EMSGSIZE:
                connection.too_large()
            else:
                connection.doubt(error.strerror or str(error))


def _ladder(fixed: int | None, route: Callable[[], int]) -> DatagramLadder:
    return DatagramLadder(route) if fixed is None else DatagramLadder.fixed(fixed)


def _largest(connected: socket.socket) -> int:
    """Return the largest size that the kernel allows on the route of a connected socket."""
    try:
        return largest(route_mtu(connected), 6 if connected.family == socket.AF_INET6 else 4)
    except OSError:
        return FLOOR


def _largest_to(address: Address) -> int:
    """Return the same for the route to an address."""
    family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
    with sockets.socket(family, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(address)
        except OSError:
            return FLOOR
        return _largest(asked)


def _continues(data: bytes, cid: bytes) -> bool:
    """Whether a datagram is a short-header packet for this connection id."""
    return data.startswith(cid, 1) and not data[0] & _LONG_HEADER
