"""Keeps one connection to a broker up, with capped and jittered back-off."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol

from aioquic.quic.packet import QuicErrorCode

from quafka_mesh_ops.broker_session import Answered, BrokerSession
from quafka_mesh_ops.identity import REVOKED, Identity
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.transport.connection import QuicSocketConnection
from quafka_mesh_ops.transport.connection_limits import TOO_MANY
from quafka_mesh_ops.transport.endpoint import dial
from quafka_telemetry.trouble_log import TroubleLog

logger = logging.getLogger("quafka.mesh.client")

# Producers and consumers wait for this delay; a refused attempt costs a few milliseconds.
_FIRST_DELAY, _LONGEST_DELAY = 0.02, 0.25
_NOBODY_LISTENS = os.strerror(errno.ECONNREFUSED)
_FULL_DELAYS = 0.5, 15.0
"""Likewise if the broker accepts no more connections: a refusal costs it a handshake."""
_LAST_ANSWERS_SECONDS = 0.25
"""How long a drained broker's last answers may take once its shard has a new owner."""


class ConnectionFollower(Protocol):
    """Follows the connection to a broker."""

    def broker_gone(self) -> None:
        """No more ops may be sent."""
        ...

    def broker_refuses(self, reason: str) -> None:
        """The broker accepts no further connection."""
        ...

    def shard_leaves(self, shard: int) -> None:
        """See SessionOwner."""
        ...


class BrokerConnector:
    """Connects to one broker again whenever a connection ends.

    Attributes:
        session: the session that accepts ops; None without one.
        peer: the node id of the broker; empty before the first connection.
        connections: the number of sessions that became ready.
        said_goodbye: whether the last session ended because the broker drained it.
        refusal: why the broker accepts no further connection; empty: it does, or is not there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        identity: Identity,
        allowed: Collection[NodeId],
        *,
        datagram_size: int | None,
        batched: bool,
        answered: Answered,
        ready: Callable[[], None],
        refused: Callable[[str], None],
        shard: int | None = None,
    ) -> None:
        """`answered` receives the responses; `ready` is called when ops may be sent, `refused`
        with the reason when the broker accepts no further connection.

        `shard`: the shard that the connections are for; None: the broker's only one.
        """
        self.host = host
        self.port = port
        self.session: BrokerSession | None = None
        self.peer: NodeId = ""
        self.connections = 0
        self.said_goodbye = False
        self.refusal = ""
        self._identity = identity
        self._allowed = allowed
        self._datagram_size = datagram_size
        self._batched = batched
        self._answered = answered
        self._ready = ready
        self._refused = refused
        self.followers: dict[ConnectionFollower, None] = {}
        self._live: BrokerSession | None = None
        """The open session, even before it accepts ops and while it drains."""
        self._connected = asyncio.Event()
        self._disconnected_at = 0.0
        self._shard = shard
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def seconds_disconnected(self) -> float:
        """Seconds since the last session accepted ops, or since the start; 0 with a session."""
        if self.session is not None:
            return 0.0
        return asyncio.get_running_loop().time() - self._disconnected_at

    def start(self) -> None:
        """Begin to connect, in the background."""
        self._disconnected_at = asyncio.get_running_loop().time()
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())
        self._task.add_done_callback(_log_failure)

    async def wait_connected(self, timeout: float) -> bool:
        """Wait for a session for up to `timeout` seconds; returns whether one is ready."""
        try:
            async with asyncio.timeout(timeout):
                await self._connected.wait()
        except TimeoutError:
            return False
        return True

    async def next_session(self) -> BrokerSession:
        """Wait for a session that accepts ops, if there is none, and return it."""
        while self.session is None:
            await self._connected.wait()
        return self.session

    async def close(self) -> None:
        """Close the connection and stop connecting."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def enforce(self) -> None:
        """Close the connection if the broker is no longer on the allow-list."""
        session = self._live
        if session is not None and session.peer and session.peer not in self._allowed:
            self._revoke(session)

    def move(self, host: str, port: int) -> None:
        """Connect to another address; port 0: to none, until the next move.

        An open connection ends at once, or, if the broker drains it, once its ops are answered.
        """
        if (host, port) == (self.host, self.port):
            return
        self.host, self.port = host, port
        self.refusal = ""
        self._moved.set()
        session = self._live
        if session is None or not port:
            return
        if session.is_draining:
            asyncio.get_running_loop().call_later(_LAST_ANSWERS_SECONDS, session.shut)
        else:
            session.shut()

    # --- SessionOwner -----------------------------------------------------------------------

    def session_ready(self, session: BrokerSession, peer: NodeId) -> None:
        """See SessionOwner."""
        if peer not in self._allowed:  # revoked during the handshake
            self._revoke(session)
            return
        logger.info("connected to node %s at %s:%d", peer[:16], self.host, self.port)
        self.peer = peer
        self.connections += 1
        self.session = session
        self.refusal = ""
        self._connected.set()
        self._ready()

    def session_gone(self, session: BrokerSession) -> None:
        """See SessionOwner."""
        if self.session is session:
            self.session = None
            self.said_goodbye = session.is_draining
            self._disconnected_at = asyncio.get_running_loop().time()
            self._connected.clear()
            for follower in list(self.followers):
                follower.broker_gone()

    def shard_leaves(self, shard: int) -> None:
        """See SessionOwner."""
        for follower in list(self.followers):
            follower.shard_leaves(shard)

    # --- connecting -------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        delay = 0.0
        trouble = TroubleLog(logger)
        loop = asyncio.get_running_loop()
        while True:
            self._moved.clear()
            if not self.port:
                await self._moved.wait()
                continue
            began = loop.time()
            was_ready, reason, passing = await self._connect_once()
            if was_ready:
                trouble.over()
            delays = _FULL_DELAYS if self._is_full(reason) else (_FIRST_DELAY, _LONGEST_DELAY)
            first, longest = delays
            # A broker that ends each connection at once must not be called without delay.
            if was_ready and loop.time() > began + longest:
                delay = 0.0
            if self.refusal:
                delay = max(delay, first)
            delay = min(delay, longest)
            line = f"no connection to {self.host}:{self.port}: {reason}"
            trouble.note(line, loop.time(), passing=passing)
            pause = delay * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            if pause:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._moved.wait()
            delay = min(max(first, 2 * delay), longest)

    def _is_full(self, reason: str) -> bool:
        """Whether a connection ended because the broker accepts no more."""
        full = reason.startswith(TOO_MANY) and not self._moved.is_set()
        self.refusal = reason if full else ""
        if full:
            self._refused(reason)
            for follower in list(self.followers):
                follower.broker_refuses(reason)
        return full

    async def _connect_once(self) -> tuple[bool, str, bool]:
        """Hold one connection until it ends.

        Returns whether it was ready, why it ended, and whether the broker may be back in a moment:
        it is stopping, or nobody listens there.
        """
        sessions: list[BrokerSession] = []

        def make_session(connection: QuicSocketConnection) -> BrokerSession:
            sessions.append(BrokerSession(self, self._answered, connection, self._shard))
            return sessions[0]

        try:
            await dial(
                self.host,
                self.port,
                self._identity,
                self._allowed,
                make_session,
                datagram_size=self._datagram_size,
                batched=self._batched,
            )
        except OSError as e:
            return False, e.strerror or str(e), e.errno == errno.ECONNREFUSED
        (session,) = sessions
        self._live = session
        try:
            reason = await session.over
        finally:
            self._live = None
            session.shut()
        nobody = not session.was_ready and reason == _NOBODY_LISTENS
        return session.was_ready, reason, session.is_draining or nobody

    def _revoke(self, session: BrokerSession) -> None:
        logger.warning("closed node %s: it was taken off the allow-list", session.peer[:16])
        session.connection.close(REVOKED, QuicErrorCode.CONNECTION_REFUSED)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the end of the task, which only a bug causes; no connection is made after it."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("no further connection will be made", exc_info=task.exception())
