"""Ops for the shards of a cluster: a process has one connection to each broker, for all its shards.

A shard is *open* once its broker has answered OPEN_SHARD on the connection. It leaves by a
SHARD_GOAWAY frame, or with the connection. While it is not open its ops are held, in their order.

A broker of an earlier version takes one shard on a connection: the answer shows that, and the shard
gets a connection of its own.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol

from quafka_loop.eager_task import EagerTask
from quafka_mesh_ops.client import MeshClient, R
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.errors import MeshError, OpFailedError, PeerUnavailableError, ShardLeftError
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import Op
from quafka_mesh_ops.ops.cluster import OpenShard
from quafka_mesh_ops.settings import join_address
from quafka_proto.errors import ErrorCode
from quafka_telemetry import semconv
from quafka_telemetry.tracing import TraceContext, Tracer, parse_traceparent
from quafka_telemetry.trouble_log import TroubleLog

logger = logging.getLogger("quafka.mesh.client")

_OPEN_SECONDS = 3.0
_FIRST_DELAY, _LONGEST_DELAY = 0.02, 0.25
_LAST_ANSWERS_SECONDS = 0.25
"""How long a broker's last answers for a shard may take once the shard has a new owner."""
_ANY_ORG = 1  # the op concerns the connection


class OpClient(Protocol):
    """Sends ops to a broker, or to a shard wherever it is: see `MeshClient`, `ShardClient`."""

    @property
    def connected(self) -> bool:
        """Whether an op would be sent now."""
        ...

    @property
    def peer(self) -> NodeId:
        """The node id of the broker; empty before the first connection."""
        ...

    @property
    def refusal(self) -> str:
        """Why the broker accepts no further connection; empty: it does, or is not there."""
        ...

    @property
    def said_goodbye(self) -> bool:
        """Whether the broker has drained the last connection, or given up the shard."""
        ...

    @property
    def seconds_disconnected(self) -> float:
        """Seconds since an op could be sent, counted from the start; 0 while one can."""
        ...

    async def start(self) -> None:
        """Begin to connect, in the background. Comes before the first call."""
        ...

    async def wait_connected(self, timeout: float) -> bool:
        """Wait until ops can be sent for up to `timeout` seconds; returns `connected`."""
        ...

    async def close(self) -> None:
        """Fail the unanswered calls, and accept no more."""
        ...

    def move(self, host: str, port: int) -> None:
        """Send ops to another address from now on; port 0: hold them until the next move."""
        ...

    def counters(self) -> PeerCounters:
        """Return the current figures of the broker and the connection to it."""
        ...

    def call(
        self,
        op: Op[R],
        *,
        org_id: int,
        deadline: float,
        trace: TraceContext | None = None,
        lane: int | None = None,
    ) -> Coroutine[Any, Any, R]:
        """See `MeshClient.call`."""
        ...


class ClientPool:
    """The connections of a process to brokers, one for each address. For one event loop."""

    def __init__(self, make: Callable[[str, int, int | None], MeshClient], tracer: Tracer) -> None:
        """`make`: makes a client that is not started, of an address and perhaps a single shard."""
        self._make = make
        self.tracer = tracer
        self._shared: dict[tuple[str, int], MeshClient] = {}
        self._users: dict[MeshClient, int] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def acquire(self, host: str, port: int) -> MeshClient:
        """The client for an address, which is started. The user releases it."""
        client = self._shared.get((host, port))
        if client is None:
            client = self._shared[host, port] = self._begin(host, port, None)
        self._users[client] += 1
        return client

    def acquire_alone(self, host: str, port: int, shard: int) -> MeshClient:
        """A client with a connection of its own for a shard. The user releases it."""
        client = self._begin(host, port, shard)
        self._users[client] += 1
        return client

    def release(self, client: MeshClient) -> None:
        """Close a client, in the background, if nobody uses it any more."""
        self._users[client] -= 1
        if self._users[client]:
            return
        del self._users[client]
        for address, shared in list(self._shared.items()):
            if shared is client:
                del self._shared[address]
        task = asyncio.get_running_loop().create_task(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def counters(self) -> list[PeerCounters]:
        """The current figures of each connection."""
        return [client.counters() for client in self._users]

    def enforce(self) -> None:
        """Close the connections to brokers that are not allowed any more."""
        for client in self._users:
            client.enforce()

    async def close(self) -> None:
        """Close all clients."""
        self._shared.clear()
        left, self._users = list(self._users), {}
        await asyncio.gather(*self._closing, *(client.close() for client in left))

    def _begin(self, host: str, port: int, shard: int | None) -> MeshClient:
        client = self._make(host, port, shard)
        self._users[client] = 0
        EagerTask(client.start(), asyncio.get_running_loop())
        return client


class ShardClient:
    """Sends ops to one shard, wherever it is, over the connections of a pool.

    As a `MeshClient`, with a connection that is open while the shard is.
    """

    def __init__(self, pool: ClientPool, host: str, port: int, shard: int | None) -> None:
        """`shard`: None: ops concern the broker. Port 0: the address is not known before the
        first `move`."""
        self._pool = pool
        self._host, self._port = host, port
        self._shard = shard
        self._loop: asyncio.AbstractEventLoop
        self._started = False
        self._client: MeshClient | None = None
        """The client for the shard's address, if it is known."""
        self._alone = False
        """Whether that client has a connection for this shard alone."""
        self._open = False
        self._leaving = False
        """Whether the broker has taken its leave, and may still answer ops that it has."""
        self._over = asyncio.Event()
        """Cleared before the shard is opened, set when it is not open any more."""
        self._connected = asyncio.Event()
        self._held: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._peer: NodeId = ""
        self._takeover: TraceContext | None = None
        """The takeover by which the shard came to where it was opened last."""
        self._disconnected_at = 0.0
        self.said_goodbye = False

    # --- the state --------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """See OpClient."""
        return self._open

    @property
    def peer(self) -> NodeId:
        """See OpClient."""
        return self._peer

    @property
    def refusal(self) -> str:
        """See OpClient."""
        return "" if self._client is None else self._client.refusal

    @property
    def seconds_disconnected(self) -> float:
        """See OpClient."""
        if self._open:
            return 0.0
        return asyncio.get_running_loop().time() - self._disconnected_at

    def counters(self) -> PeerCounters:
        """See OpClient. The figures are those of all shards of the connection."""
        if self._client is None:
            return PeerCounters(self._peer, join_address(self._host, self._port), connected=False)
        return replace(self._client.counters(), connected=self._open)

    async def start(self) -> None:
        """See OpClient."""
        self._loop = asyncio.get_running_loop()
        self._disconnected_at = self._loop.time()
        self._started = True
        if self._port:
            self._attach(self._pool.acquire(self._host, self._port))

    async def wait_connected(self, timeout: float) -> bool:
        """See OpClient."""
        try:
            async with asyncio.timeout(timeout):
                await self._connected.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """See OpClient."""
        self._started = False
        self._detach(at_once=True)
        self._fail_held("the mesh client was closed")

    def move(self, host: str, port: int) -> None:
        """See OpClient. Ops that are sent and unanswered fail (OutcomeUnknownError), unless the
        broker has taken its leave and answers them in a moment."""
        if (host, port) == (self._host, self._port):
            return
        self._host, self._port = host, port
        if not self._started or (self._open and not port):
            return  # in the latter case ops are sent until the broker takes its leave
        self._detach(at_once=False)
        if port:
            self._attach(self._pool.acquire(host, port))

    # --- calls ------------------------------------------------------------------------------

    async def call(
        self,
        op: Op[R],
        *,
        org_id: int,
        deadline: float,
        trace: TraceContext | None = None,
        lane: int | None = None,
    ) -> R:
        """See `MeshClient.call`; the deadline covers the time while the shard is not open, too."""
        until = asyncio.get_running_loop().time() + deadline
        while True:
            if not self._open or self._held:
                await self._hold_traced(until, trace)
            client, shard = self._client, None if self._alone else self._shard
            assert client is not None
            try:
                return await client.call(
                    op, org_id=org_id, deadline=deadline, trace=trace, lane=lane, shard=shard
                )
            except ShardLeftError:
                deadline = until - self._loop.time()

    async def _hold_traced(self, until: float, trace: TraceContext | None) -> None:
        """As `_hold`. The span of the wait has a link to the takeover that it was for."""
        with self._pool.tracer.start(semconv.QUEUED, trace) as span:
            if self._shard is not None:
                span.set({semconv.SHARD: self._shard})
            try:
                await self._hold(until)
            finally:
                if self._port:
                    span.set({semconv.PEER_ADDRESS: self._host, semconv.PEER_PORT: self._port})
            if self._takeover is not None:
                span.link((self._takeover,))

    async def _hold(self, until: float) -> None:
        """Wait until the shard is open, and all earlier calls are on their way.

        Raises:
            PeerUnavailableError: it is not, by then.
        """
        if not self._started:
            raise PeerUnavailableError("the mesh client is closed")
        if self.refusal:
            raise PeerUnavailableError(self.refusal)
        held = self._loop.create_future()
        self._held[held] = None
        timer = self._loop.call_at(until, self._expire, held)
        try:
            await held
            while not self._open:  # it has left since
                del self._held[held]
                held = self._loop.create_future()
                self._held[held] = None
                self._held.move_to_end(held, last=False)
                timer.cancel()
                timer = self._loop.call_at(until, self._expire, held)
                await held
        finally:
            timer.cancel()
            del self._held[held]
            self._let_next()

    def _let_next(self) -> None:
        """Let the first held call continue. The next follows once it is on its way."""
        if self._open and self._held:
            first = next(iter(self._held))
            if not first.done():
                first.set_result(None)

    def _expire(self, held: asyncio.Future[None]) -> None:
        if not held.done():
            held.set_exception(PeerUnavailableError(f"{self._name} could not be reached in time"))

    def _fail_held(self, reason: str) -> None:
        for held in self._held:
            if not held.done():
                held.set_exception(PeerUnavailableError(reason))

    @property
    def _name(self) -> str:
        what = "the broker" if self._shard is None else f"shard {self._shard}"
        return f"{what} at {join_address(self._host, self._port)}"

    # --- Follower ---------------------------------------------------------------------------

    def broker_gone(self) -> None:
        """See ConnectionFollower."""
        if self._open and self._client is not None:
            self.said_goodbye = self._leaving = self._client.said_goodbye
        self._leave()

    def broker_refuses(self, reason: str) -> None:
        """See ConnectionFollower."""
        self._fail_held(reason)

    def shard_leaves(self, shard: int) -> None:
        """See ConnectionFollower."""
        if shard == self._shard:
            self.said_goodbye = self._leaving = True
            self._leave()

    # --- opening ----------------------------------------------------------------------------

    def _attach(self, client: MeshClient) -> None:
        self._client = client
        client.followers[self] = None
        self._task = self._loop.create_task(self._keep_open(client))
        self._task.add_done_callback(_log_failure)

    def _detach(self, *, at_once: bool) -> None:
        """Leave the client, once it has answered the ops that it may still answer."""
        if self._task is not None:
            self._task.cancel()
        client, alone, leaving = self._client, self._alone, self._leaving
        if client is None:
            return
        client.followers.pop(self, None)
        self._leave()
        self._client, self._alone, self._leaving = None, False, False

        def let_go() -> None:
            if self._shard is not None and not alone:
                client.abandon(self._shard)
            self._pool.release(client)

        if leaving and not at_once:
            self._loop.call_later(_LAST_ANSWERS_SECONDS, let_go)
        else:
            let_go()

    def _enter(self, client: MeshClient) -> None:
        """Ops may be sent from now on."""
        self._open, self._leaving = True, False
        self._peer = client.peer
        if self._shard is not None:
            client.count_shards(1)
        self._connected.set()
        self._let_next()

    def _leave(self) -> None:
        """No ops may be sent until the shard is open again."""
        self._over.set()
        if not self._open:
            return
        self._open = False
        self._disconnected_at = self._loop.time()
        self._connected.clear()
        client = self._client
        assert client is not None
        if self._shard is not None:
            client.count_shards(-1)
        client.recall(None if self._alone else self._shard)

    async def _keep_open(self, client: MeshClient) -> None:
        delay, trouble = 0.0, TroubleLog(logger)
        while True:
            await client.next_session()
            self._over.clear()
            reason = await self._ask(client)
            if not reason and client is not self._client:
                return  # it has a connection of its own now
            if not reason and client.connected and not self._over.is_set():
                delay = 0.0
                trouble.over()
                self._enter(client)
                await self._over.wait()
                if not self._port:
                    self._detach(at_once=False)
                    return
            elif reason:
                trouble.note(f"{self._name}: {reason}", self._loop.time(), passing=True)
                delay = min(max(_FIRST_DELAY, 2 * delay), _LONGEST_DELAY)
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _ask(self, client: MeshClient) -> str:
        """Open the shard; returns why it is not open."""
        self._takeover = None
        if self._shard is None or self._alone:
            return ""
        op = OpenShard(self._shard, several=True)
        try:
            answer = await client.call(op, org_id=_ANY_ORG, deadline=_OPEN_SECONDS)
        except OpFailedError as e:
            if e.error_code != ErrorCode.INVALID_REQUEST:
                return "it is not there (it may be moving)"
            self._go_alone(client, self._shard)
        except MeshError as e:
            return str(e)
        else:
            self._takeover = parse_traceparent(answer.traceparent)
            if not answer.several:
                self._go_alone(client, self._shard)
        return ""

    def _go_alone(self, shared: MeshClient, shard: int) -> None:
        """Use a connection for this shard alone: the broker's version knows no other."""
        del shared.followers[self]
        self._alone = True
        self._attach(self._pool.acquire_alone(self._host, self._port, shard))
        self._pool.release(shared)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the end of the task, which only a bug causes; the shard is not opened after it."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("a shard will not be opened any more", exc_info=task.exception())
