"""A gateway and a broker in one process: all of both but the sockets between and in front.

A client's bytes go through the gateway's connection, its ops through the mesh's encoding to the
broker's handlers, and the answers back the same way. The disk is memory that survives restarts.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, TypeVar, cast

from quafka_broker.ops.table import OPS as HANDLERS
from quafka_broker.state import BrokerState
from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import Services
from quafka_gateway.edge.connection import KafkaConnection
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.envelopes import (
    decode_request,
    decode_response,
    encode_body,
    encode_request,
    encode_response,
)
from quafka_mesh_ops.errors import OpFailedError, PeerUnavailableError
from quafka_mesh_ops.frames import FrameReader
from quafka_mesh_ops.ops.base import Buffer, Op, R
from quafka_mesh_ops.ops.codec import from_wire
from quafka_mesh_ops.ops.table import OPS
from quafka_proto.codec import decode
from quafka_proto.headers import decode_response_header
from quafka_proto.headers import encode_request as encode_kafka_request
from quafka_proto.message import Message
from quafka_telemetry.tracing import Tracer
from tests.support.memory_transport import MemoryTransport
from tests.support.tenants import LISTENER, only, tenant_over
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state

M = TypeVar("M", bound=Message)
_SECONDS = 30.0


class Mesh:
    """Stands where `MeshClient` does; ops and answers are bytes on the way."""

    def __init__(self) -> None:
        self.state: BrokerState | None = None

    @property
    def connected(self) -> bool:
        """As of `MeshClient`."""
        return self.state is not None

    async def call(self, op: Op[R], *, org_id: int, **_: Any) -> R:
        if self.state is None:
            raise PeerUnavailableError("the broker is away")
        frame = encode_request(1, op.code, org_id, "", "", 1_000, encode_body(op))
        request = decode_request(_payload(frame))
        received = from_wire(OPS[request.op_code], request.body)
        try:
            answer = await HANDLERS[op.code](self.state, context(), received)
            reply = encode_response(1, 0, encode_body(answer))
        except OpFailedError as e:
            reply = encode_response(1, e.error_code, None)
        response = decode_response(_payload(reply))
        if response.error_code:
            raise OpFailedError(response.error_code)
        return from_wire(op.response, response.body)


def _payload(frame: list[Buffer]) -> Buffer:
    ((_, payload),) = FrameReader().feed(b"".join(frame))
    return payload


class Joined:
    """Both programs. Restarting the broker keeps its disk; a new gateway has no sessions."""

    def __init__(
        self, slots: int = 100, mesh: Mesh | None = None, lease_seconds: float = 0.0
    ) -> None:
        """With a `lease_seconds` of 0, the gateway keeps no records."""
        self.disk = MemoryDisk()
        self.mesh = mesh or Mesh()
        self._slots = slots
        self._serials = count()
        self._lease_seconds = lease_seconds
        self._running = AsyncExitStack()
        self.start_gateway()

    def start_gateway(self) -> None:
        """A gateway as it is after its start."""
        broker = BrokerLink(cast(MeshClient, self.mesh), ORG)
        responses = ResponseMemory(256 << 20 if self._lease_seconds else 1 << 20)
        self.services = Services(
            APIS,
            only(
                tenant_over(
                    broker,
                    responses,
                    ORG,
                    fetch_sessions=self._slots,
                    cache_bytes=(16 << 20) if self._lease_seconds else 0,
                )
            ),
            (LISTENER,),
            Tracer(),
            1 << 20,
            RequestMemory(1 << 20),
            responses,
            EdgeSettings(),
        )

    async def start_broker(self) -> None:
        """A broker as it is after its start, on the disk that there is."""
        self.mesh.state = await self._running.enter_async_context(
            running_state(self.disk, lease_seconds=self._lease_seconds)
        )

    async def stop_broker(self) -> None:
        """Answer what is parked, and close the log."""
        self.mesh.state = None
        await self._running.aclose()

    def connect(self) -> Connected:
        """A client's connection."""
        return Connected(self.services, next(self._serials))


class Connected:
    """One client, who sends a request at a time."""

    def __init__(self, services: Services, serial: int) -> None:
        self.transport = Written()
        self.connection = KafkaConnection(services, APIS, LISTENER, serial, lambda _: None)
        self.connection.connection_made(self.transport)

    def begin(self, request: Message, version: int) -> None:
        """Send a request: the gateway has seen it when this returns."""
        frame = encode_kafka_request(7, "joined", request, version)
        self.connection.data_received(b"".join(frame))

    async def send(self, request: Message, version: int) -> None:
        """Send a request."""
        self.begin(request, version)

    async def receive(self, response_type: type[M], version: int) -> M:
        """The answer. Raises TimeoutError: there was none."""
        async with asyncio.timeout(_SECONDS):
            while not self.transport.whole:
                self.transport.some.clear()
                await self.transport.some.wait()
        frame, self.transport.written = self.transport.written[4:], b""
        _, at = decode_response_header(response_type, version, frame)
        return cast(M, decode(response_type, version, frame, at))

    async def call(self, request: Message, response_type: type[M], version: int) -> M:
        """Ask, and wait for the answer."""
        await self.send(request, version)
        return await self.receive(response_type, version)


class Written(MemoryTransport):
    """Says when an answer is there."""

    def __init__(self) -> None:
        super().__init__()
        self.some = asyncio.Event()

    @property
    def whole(self) -> bool:
        """Whether the answer is there in full."""
        size = int.from_bytes(self.written[:4], "big")
        return 4 <= len(self.written) == 4 + size

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        super().write(data)
        self.some.set()

    def writelines(self, list_of_data: Any) -> None:
        super().writelines(list_of_data)
        self.some.set()
