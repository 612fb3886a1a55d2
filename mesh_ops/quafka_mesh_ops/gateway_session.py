"""One gateway's connection, seen from the broker: frames become ops, within the peer's limits."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from aioquic.quic.packet import QuicErrorCode

from quafka_loop.heap import WORTH_IT, trim_heap
from quafka_mesh_ops.bulk.listener import BulkListener
from quafka_mesh_ops.bulk.session_offer import SessionOffer
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.errors import OpFailedError, ProtocolError
from quafka_mesh_ops.frames import (
    LANES,
    MAX_FRAME,
    StreamFrames,
    Tag,
    decode_number,
    encode_goaway,
    encode_number,
)
from quafka_mesh_ops.grants import Gatekeeper
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.identity import REVOKED
from quafka_mesh_ops.long_payloads import request_of
from quafka_mesh_ops.memory.offer import MemoryOffer
from quafka_mesh_ops.memory.shared import MEMORY_BYTES
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.op_runner import INVALID_REQUEST, UNSUPPORTED_VERSION, OpRunner
from quafka_mesh_ops.ops.base import Buffer, OpCode
from quafka_mesh_ops.ops.bulk import OpenBulk
from quafka_mesh_ops.ops.cluster import OpenShard, OpenShardResp
from quafka_mesh_ops.ops.codec import from_wire, weight
from quafka_mesh_ops.ops.memory import OpenMemory
from quafka_mesh_ops.ops.pieces import OpenPieces, OpenPiecesResp
from quafka_mesh_ops.ops.table import OPS
from quafka_mesh_ops.pieces import Pieces
from quafka_mesh_ops.running_op import RunningOp
from quafka_mesh_ops.served_shards import DEFAULT_SHARD, Served, ServedOp, ServedShards
from quafka_mesh_ops.settings import join_address
from quafka_mesh_ops.transport.aioquic_adapter.counters import read as transport_counters
from quafka_mesh_ops.transport.connection import QuicSocketConnection
from quafka_mesh_ops.transport.liveness import Liveness
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_mesh_ops.transport.udp import Address
from quafka_telemetry.tracing import Tracer

logger = logging.getLogger("quafka.mesh.server")

MAX_IN_FLIGHT = 32_768
MAX_UNFINISHED = 2 * MAX_FRAME
MAX_REQUEST_BYTES = 448 << 20
"""Per connection: ops received and unanswered, for each of its shards; bytes of incomplete frames
(one on the control stream, one on a lane); bytes of both, with the memory that the ops take once
decoded. A gateway stays below them, whatever its clients send (scheduler.py); above them its
connection is closed."""

# Reading a member from its class costs more than a comparison.
_OP, _PLACED = Tag.OP, Tag.PLACED
_NO_OPS: Served = {}
_MAX_DEADLINE_MS = 3_600_000
_ARRIVAL_SECONDS = 2.0  # less than a gateway waits for the end of a handshake
NOT_LEADER_OR_FOLLOWER = 6
"""The Kafka error code of an op on a shard that is not here."""


@dataclass(frozen=True, slots=True, eq=False)
class ServerParts:
    """The objects that the sessions of a server share.

    `connections`: their number by node. `bulk`: offers TLS connections for bulk replies; None:
    no such offers are made. `memory`: whether large ops may lie in shared memory.
    """

    allowed: Collection[NodeId]
    shards: ServedShards
    gatekeeper: Gatekeeper
    tracer: Tracer
    limited: LimitedLog
    sessions: dict[GatewaySession, None]
    connections: Counter[NodeId]
    bulk: BulkListener | None
    memory: bool


class _Blocked(NamedTuple):
    """An op that waits for an earlier one of its org. `selected`: the shard that it is for."""

    request_id: int
    selected: int | None
    payload: Buffer


class GatewaySession:
    """One gateway's connection."""

    def __init__(
        self, server: ServerParts, connection: QuicSocketConnection, address: Address
    ) -> None:
        self.connection = connection
        self._server = server
        self._address = address
        self._peer: NodeId = ""
        self._frames = StreamFrames(MAX_UNFINISHED)
        self._ops = OpRunner(connection, server.gatekeeper, server.tracer, server.limited)
        self._bulk = SessionOffer(server.bulk, self._ops.replies, self._ops.progress)
        self._memory = MemoryOffer(server.memory)
        self._pieces = Pieces(MAX_REQUEST_BYTES)
        self._everywhere: Served = {
            OpCode.OPEN_BULK: (OpenBulk, self._bulk.open),
            OpCode.OPEN_MEMORY: (OpenMemory, self._memory.open),
            OpCode.OPEN_PIECES: (OpenPieces, _take_pieces),
            OpCode.OPEN_SHARD: (OpenShard, self._open_shard),
            **server.shards.everywhere,
        }
        self.shard: int | None = None
        """The only shard of the connection, or its first one; None before an op on one."""
        self.several = False
        """Whether the connection may be for several shards."""
        self._open: dict[int | None, Served] = {}
        """The ops of each shard that the connection is for."""
        self._selected: dict[int, int] = {}
        """The shard that the ops on a stream are for, if the peer has named one."""
        self._blocked: dict[tuple[int, int], deque[_Blocked]] = {}
        """The ops behind a long op of their org that is being read, by lane and org."""
        self._blocked_bytes = 0
        self._streams: set[int] = set()
        self._liveness: Liveness | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def running(self) -> Mapping[int, RunningOp]:
        """The running ops, by request id."""
        return self._ops.running

    @property
    def busy(self) -> bool:
        """Whether an op is unanswered or an answer not yet acknowledged."""
        return self._ops.busy or not all(map(self.connection.is_delivered, self._streams))

    def say_goodbye(self) -> None:
        """Ask the peer to send no more ops on this connection."""
        if 0 in self._streams:
            self.connection.write(0, [encode_goaway()])

    # --- one of several shards --------------------------------------------------------------

    def has_among_others(self, shard: int) -> bool:
        """Whether the connection is for this shard, and may be for others."""
        return self.several and shard in self._open

    def say_goodbye_for(self, shard: int) -> None:
        """Ask the peer to send no more ops for a shard."""
        self.connection.write(0, [encode_number(Tag.SHARD_GOAWAY, shard)])

    def is_busy_with(self, shard: int) -> bool:
        """Whether an op for this shard is unanswered."""
        return self._ops.is_busy_with(shard)

    def end_shard(self, shard: int) -> list[RunningOp]:
        """Accept no more ops for a shard; returns those that are being ended."""
        self._open.pop(shard, None)
        return self._ops.end_shard(shard)

    # ----------------------------------------------------------------------------------------

    def counters(self) -> PeerCounters:
        """Return the current figures of the gateway."""
        return PeerCounters(
            peer=self._peer,
            address=join_address(*self._address[:2]),
            connected=self.connection.is_ready,
            reconnects=self._server.connections[self._peer] - 1,
            ops=len(self._ops),
            credit_used_bytes=self._received_bytes,
            credit_bytes=MAX_REQUEST_BYTES,
            backlog_bytes=self._ops.backlog,
            bulk_over_tls=self._ops.replies.over_tls,
            bulk_tls_bytes=self._ops.replies.tls_bytes,
            memory_shared=self._memory.taken,
            memory_bytes=self._memory.read_bytes,
            refused_ops=self._server.gatekeeper.refused[self._peer],
            transport=transport_counters(self.connection.quic),
        )

    def enforce(self) -> None:
        """Close the connection of a node that is no longer allowed; end its disallowed ops."""
        if self._peer not in self._server.allowed:
            logger.warning("closed node %s: it was taken off the allow-list", self._peer[:16])
            self.connection.close(REVOKED, QuicErrorCode.CONNECTION_REFUSED)
            return
        self._ops.enforce()

    # --- ConnectionUser ---------------------------------------------------------------------

    def connection_ready(self, peer: NodeId) -> None:
        """See ConnectionUser: the gateway is authenticated and allowed."""
        self._peer = self._ops.peer = peer
        self._server.sessions[self] = None
        self._server.connections[peer] += 1
        self.connection.when_progress(self._ops.progress)
        self._liveness = Liveness(self.connection, lambda: self._ops.is_waited_for)
        logger.info("node %s connected from %s", peer[:16], self._address[0])
        self.enforce()  # the node may have been revoked during the handshake

    def stream_data(self, stream_id: int, data: bytes, end_stream: bool) -> None:
        """Act on every frame that is complete."""
        # Client-initiated bidirectional streams have ids 0, 4, 8, ... (RFC 9000 section 2.1).
        if stream_id & 3 or stream_id >> 2 > LANES or end_stream:
            self._refuse(f"stream {stream_id} is not as the mesh uses streams")
            return
        self._streams.add(stream_id)
        placed = 0
        try:
            for tag, payload in self._frames.feed(stream_id, data, end_stream):
                if tag is _PLACED and not self.connection.is_over:
                    tag, payload = self._memory.read(payload)
                    placed += len(payload)
                    self._check_placed(placed)
                if self.connection.is_over:  # an op before this one has closed it
                    return
                self._act(stream_id, tag, payload)
        except ProtocolError as e:
            self._refuse(str(e))
            return
        if self._received_bytes > MAX_REQUEST_BYTES:
            self._refuse(_too_many_bytes())

    def _check_placed(self, placed: int) -> None:
        """Raise ProtocolError if the frames in memory that arrived together exceed a limit."""
        if placed > MEMORY_BYTES:
            raise ProtocolError("frames that do not lie side by side in memory")
        if self._received_bytes + placed > MAX_REQUEST_BYTES:
            raise ProtocolError(_too_many_bytes())

    def stream_reset(self, stream_id: int) -> None:
        """See ConnectionUser. The peer may refuse a bulk reply; long-lived streams stay open."""
        if stream_id & 3 == 3:
            self._ops.reply_reset(stream_id)
        else:
            self._refuse("a long-lived stream was reset")

    def connection_closed(self, reason: str) -> None:
        """Cancel the ops of the peer."""
        if self._liveness is not None:
            self._liveness.stop()
        unfinished = self._frames.unfinished + self._pieces.unfinished
        self._blocked.clear()
        self._frames = StreamFrames(MAX_UNFINISHED)
        self._pieces.clear()
        if unfinished >= WORTH_IT:
            asyncio.get_running_loop().run_in_executor(None, trim_heap)
        self._ops.cancel_all()
        self._bulk.close()
        self._memory.close()
        if self._peer:
            self._server.sessions.pop(self, None)
            logger.info("node %s disconnected: %r", self._peer[:16], reason)

    # --- frames -----------------------------------------------------------------------------

    @property
    def _received_bytes(self) -> int:
        unfinished = self._frames.unfinished + self._pieces.unfinished
        return self._ops.request_bytes + self._blocked_bytes + unfinished

    def _act(self, stream_id: int, tag: Tag, payload: Buffer) -> None:
        if tag is _OP:
            self._op(stream_id, payload, self._selected.get(stream_id))
        elif tag is Tag.PIECE:
            frame = self._pieces.feed(stream_id, payload)
            if frame is not None:
                self._op(stream_id, frame[1], self._selected.get(stream_id))
        elif tag is Tag.CANCEL:
            self._cancel(decode_number(payload))
        elif tag is Tag.SHARD and self.several:
            self._selected[stream_id] = decode_number(payload)
        elif tag is Tag.PING:
            self.connection.write(stream_id, [encode_number(Tag.PONG, decode_number(payload))])
        else:
            raise ProtocolError(f"a {tag.name} frame from a client")

    def _op(self, stream_id: int, payload: Buffer, selected: int | None) -> None:
        """Begin an op. `selected`: the shard that the peer has named for it."""
        request, long = request_of(payload)
        ops, request_id = self._ops, request.request_id
        blocked = self._blocked.get((stream_id, request.org_id)) if self._blocked else None
        if blocked is not None:
            blocked.append(_Blocked(request_id, selected, payload))
            self._blocked_bytes += len(payload)
            return
        if request_id in ops.running or request_id in ops.waiting:
            raise ProtocolError("a request id that is in use")
        if len(ops.running) + len(ops.waiting) >= MAX_IN_FLIGHT * max(1, len(self._open)):
            raise ProtocolError(f"more than {MAX_IN_FLIGHT} ops at once")
        if ops.is_refused(stream_id, request):
            return
        shard, served = self._find(selected, request.op_code)
        if served is None:
            absent = shard not in self._open and request.op_code in OPS
            code = NOT_LEADER_OR_FOLLOWER if absent else UNSUPPORTED_VERSION
            ops.answer_error(stream_id, request_id, code)
            return
        op_type, handler = served
        deadline = self._loop.time() + min(request.deadline_ms, _MAX_DEADLINE_MS) / 1000
        running = ops.receive(stream_id, request, op_type, handler, deadline, len(payload))
        running.shard = shard
        if long is not None:
            if stream_id:  # a lane: the org's ops after this one must wait
                self._blocked[stream_id, request.org_id] = deque()
            ops.read_long(running, long, partial(self._unblock, request.org_id), self._refuse)
            return
        try:
            op = from_wire(op_type, request.body)
        except ProtocolError as e:
            ops.refuse_body(running, e)
            return
        request.body = []
        running.size += weight(op)
        if self._received_bytes + running.size > MAX_REQUEST_BYTES:
            raise ProtocolError(_too_many_bytes())
        ops.begin(running, op)

    def _find(self, selected: int | None, code: int) -> tuple[int | None, ServedOp | None]:
        """The shard that an op is for, and the op's type and handler."""
        shard = self.shard if selected is None else selected
        served = self._open.get(shard, _NO_OPS).get(code)
        if served is not None:
            return shard, served
        served = self._everywhere.get(code)
        if served is not None:
            return None, served
        if self.shard is None and self._begin_shard(DEFAULT_SHARD):
            return DEFAULT_SHARD, self._open[DEFAULT_SHARD].get(code)
        return shard, None

    def _begin_shard(self, number: int) -> bool:
        """Serve the ops on a shard; False: it is not here."""
        served = self._server.shards.find(number)
        if served is None:
            return False
        self._open[number] = served
        if self.shard is None:
            self.shard = number
        return True

    async def _open_shard(self, _context: OpContext, op: OpenShard) -> OpenShardResp:
        await self._server.shards.arrival(op.shard, _ARRIVAL_SECONDS)
        if self.shard is not None and not (op.several and self.several):
            raise OpFailedError(INVALID_REQUEST)
        if not self._begin_shard(op.shard):
            raise OpFailedError(NOT_LEADER_OR_FOLLOWER)
        self.several = op.several
        return OpenShardResp(op.several, self._server.shards.recent_takeover(op.shard))

    def _cancel(self, request_id: int) -> None:
        for blocked in self._blocked.values():
            for each in blocked:
                if each.request_id == request_id:
                    blocked.remove(each)
                    self._blocked_bytes -= len(each.payload)
                    return
        self._ops.cancel(request_id)

    def _unblock(self, org: int, stream_id: int) -> None:
        """Act on the ops of an org that waited on a lane for a long op."""
        key = stream_id, org
        blocked = self._blocked.pop(key, None)
        try:
            while blocked and not self.connection.is_over:
                _, selected, payload = blocked.popleft()
                self._blocked_bytes -= len(payload)
                self._op(stream_id, payload, selected)
                if key in self._blocked:  # this op is long as well
                    self._blocked[key] = blocked
                    break
        except ProtocolError as e:
            self._refuse(str(e))

    def _refuse(self, reason: str) -> None:
        self._server.limited.warning(
            reason, "closed node %s at %s: %s", self._peer[:16], self._address[0], reason
        )
        self.connection.close(reason, QuicErrorCode.PROTOCOL_VIOLATION)


async def _take_pieces(_context: OpContext, _op: OpenPieces) -> OpenPiecesResp:
    return OpenPiecesResp()


def _too_many_bytes() -> str:
    return f"more than {MAX_REQUEST_BYTES} bytes of requests at once"
