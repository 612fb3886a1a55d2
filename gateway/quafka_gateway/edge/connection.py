"""One client's TCP connection: requests in, responses out, in the order of the requests.

Kafka finishes one request of a connection before it begins the next. So does this gateway, as far
as a client can see: a request waits for earlier requests that touch the same state
(`RequestOrder`), and responses leave in request order. Other requests run concurrently, so that
pipelined produces share group commits. A long poll begins when it is the first request in flight,
so that a connection never holds more than one large response, and later requests wait for it.

Back-pressure is by not reading: at most `_MAX_IN_FLIGHT` requests of a connection are in flight, a
client that does not read its responses is not read from, and no client is read from while the
requests of all clients are over their bound (`RequestMemory`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import dropwhile
from typing import Any, cast

from quafka_gateway.context import Services
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.edge.in_flight import InFlightRequest
from quafka_gateway.edge.long_responses import LongResponses
from quafka_gateway.edge.progress import Progress
from quafka_gateway.edge.request_decoding import Decoded, Decoding, decode_request, order_of
from quafka_gateway.edge.request_intake import RequestIntake
from quafka_gateway.edge.request_order import RequestOrder
from quafka_gateway.edge.request_serving import RequestServing
from quafka_gateway.edge.request_trace import ConnectionTracing, RequestTrace
from quafka_gateway.edge.response_writer import ResponseWriter
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_proto.errors import Malformed
from quafka_telemetry.slices import SLICE_SECONDS

log = logging.getLogger("quafka.gateway.connection")

_MAX_IN_FLIGHT = 64


class KafkaConnection(asyncio.Protocol):
    """Serves one client until it goes, breaks the protocol or the gateway drains."""

    # Set by `connection_made`, which asyncio calls first.
    _intake: RequestIntake
    _tracing: ConnectionTracing
    _serving: RequestServing

    def __init__(
        self,
        services: Services,
        apis: Mapping[int, AnyApi],
        serial: int,
        on_close: Callable[[KafkaConnection], None],
        may_open: Callable[[KafkaConnection], bool] = lambda _: True,
    ) -> None:
        """`may_open` is called once the client's address is known; False refuses the client."""
        self._services = services
        self._apis = apis
        self._client = ConnectedClient("?", 0, serial)
        self._on_close = on_close
        self._may_open = may_open
        self._in_flight: deque[InFlightRequest] = deque()  # decoded, not yet answered
        self._order = RequestOrder(self._in_flight)
        self._long_responses = LongResponses(services, self._in_flight, self._client_reads)
        self._decoding: Decoding | None = None  # later frames wait for it
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._writer: ResponseWriter | None = None
        self._draining = False
        self._writing: RequestTrace | None = None  # of the response that is not yet sent whole
        self.last_active = 0.0
        """Loop time of the last byte from or to the client."""

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        if peer:
            self._client = ConnectedClient(str(peer[0]), int(peer[1]), self._client.serial)
        transport = cast(asyncio.Transport, transport)
        if not self._may_open(self):
            transport.abort()
            return
        self._transport = transport
        services, config = self._services, self._services.config
        rate = config.socket_min_bytes_per_second
        reads = Progress(config.socket_response_stall_ms / 1000, rate)
        self._writer = ResponseWriter(transport, services.response_memory, services.stats, reads)
        sends = Progress(config.socket_request_stall_ms / 1000, rate)
        self._held = services.request_memory.open(self.host, self._evict, self._balance_reading)
        self._intake = RequestIntake(services.request_max_bytes, self._held, sends)
        self._frames = self._intake.frames  # whole, not yet decoded
        self.last_active = asyncio.get_running_loop().time()
        self._tracing = ConnectionTracing(services, self._client)
        self._serving = RequestServing(
            services, self._client, self._tracing, self._long_responses, self._release
        )

    def data_received(self, data: bytes) -> None:
        self.last_active = asyncio.get_running_loop().time()
        self._services.stats.received += len(data)
        try:
            self._intake.feed(data, self.last_active)
            self._begin_requests()
        except Malformed as e:
            self._refuse(str(e))

    def pause_writing(self) -> None:
        if self._writer is not None:
            self._writer.pause()

    def resume_writing(self) -> None:
        if self._writer is not None:
            self._writer.resume()
        self.last_active = asyncio.get_running_loop().time()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return  # it was refused
        self._transport = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._intake.connection_lost(asyncio.get_running_loop().time())
        # Long polls, long responses, and reads that have not begun, are dropped with their client.
        # Writes are completed: a client may send with acks=0 and leave.
        self._response_sent()
        self._drop(
            request
            for request in self._in_flight
            if request.done
            or request.order.long_poll
            or request.may_be_long
            or not (request.begun or request.order.writes)
        )
        self._start_ready()
        self._on_close(self)

    # --- for the listener -------------------------------------------------------------------

    @property
    def host(self) -> str:
        """The client's address, without the port."""
        return self._client.host

    @property
    def busy(self) -> bool:
        """Whether a request is in flight that must be answered before closing."""
        if self._decoding is not None:
            return True
        return any(not request.api.long_poll for request in self._in_flight)

    def stalled(self, now: float) -> bool:
        """Whether a request has begun to arrive, and has stopped or arrives too slowly."""
        return self._reading and self._intake.stalled(now)

    def idle_since(self, now: float) -> float:
        """Seconds since the last byte from or to the client; 0 while either waits for the other."""
        unread = self._writer is not None and self._writer.unread
        return 0.0 if self._in_flight or unread else now - self.last_active

    def unread(self, now: float) -> tuple[int, float]:
        """Response bytes that the client has not read, and `ResponseWriter.seconds_stuck`."""
        return (
            (0, 0.0)
            if self._writer is None
            else (self._writer.unread, self._writer.seconds_stuck(now))
        )

    def drain(self) -> None:
        """Read no more requests; close when those in flight are answered."""
        self._draining = True
        self._intake.drop_frames(asyncio.get_running_loop().time())
        # A client that loses a long poll sends it again. Requests after a long poll have not begun.
        self._drop(dropwhile(lambda request: not request.order.long_poll, self._in_flight))
        if self._transport is not None:
            self._transport.pause_reading()
            self._advance()

    def close(self, reason: str) -> None:
        """Close now."""
        if self._transport is not None and not self._transport.is_closing():
            log.info("closing %s: %s", self._client, reason)
            self._transport.abort()

    async def wait_tasks(self) -> None:
        """Wait until no task of this connection is running."""
        while self._tasks:  # a task that ends may begin the next
            await asyncio.wait(self._tasks)

    # --- requests ---------------------------------------------------------------------------

    def _begin_requests(self) -> None:
        until = 0.0  # set when there is a second request
        while self._may_begin:
            frame = self._frames.popleft()
            try:
                decoded = decode_request(self._apis, frame)
            except Malformed:
                self._held.release(len(frame), asyncio.get_running_loop().time())
                raise
            if isinstance(decoded, Decoding):
                self._decoding = decoded
                self._spawn(self._decode_long(decoded, frame))
                break
            self._add(decoded, frame)
            if self._frames:
                now = time.perf_counter()
                until = until or now + SLICE_SECONDS
                if now >= until:
                    break  # `_advance` calls this again
        self._advance()
        self._balance_reading()

    @property
    def _may_begin(self) -> bool:
        """Whether a request can be decoded and put in flight."""
        free = self._decoding is None and not self._draining
        return free and bool(self._frames) and len(self._in_flight) < _MAX_IN_FLIGHT

    def _balance_reading(self) -> None:
        if self._transport is None or self._draining or self._transport.is_closing():
            return
        full = bool(self._frames) or self._held.full
        if full and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not full and not self._reading:
            self._reading = True
            self._intake.reading_resumed(asyncio.get_running_loop().time())
            self._transport.resume_reading()
        if not self._reading and self._held.full:
            self._held.wait_for_room()

    def _evict(self, reason: str) -> None:
        """Close the connection to make room for others."""
        if self._transport is not None and not self._transport.is_closing():
            log.warning("closing %s: %s", self._client, reason)
            self._transport.abort()

    async def _decode_long(self, decoding: Decoding, frame: bytes) -> None:
        """Decode a long request. Later requests of the connection wait, so that order holds."""
        try:
            decoded = await decoding.finish()
        except Malformed as e:
            self._held.release(len(frame), asyncio.get_running_loop().time())
            self._refuse(str(e))
            return
        finally:
            self._decoding = None
        if self._transport is None and not decoded.api.order.writes:
            self._held.release(len(frame), asyncio.get_running_loop().time())
            return
        self._add(decoded, frame)
        self._resume()

    def _add(self, decoded: Decoded, frame: bytes) -> None:
        """Put a request in flight; begin it unless it must wait."""
        header, api, message = decoded.header, decoded.api, decoded.request
        request = InFlightRequest(
            header,
            api,
            order_of(api, message, len(frame)),
            message,
            len(frame),
            self._tracing.sample(api, header, message, frame),
            api.may_be_long(message),
        )
        self._in_flight.append(request)
        if self._order.add(request):
            self._start(request)

    def _start(self, request: InFlightRequest) -> None:
        request.begun = True
        request.task = self._spawn(self._serve(request))

    def _start_ready(self) -> None:
        for request in self._order.pop_ready():
            self._start(request)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, request: InFlightRequest) -> None:
        """Serve a request to its end. Raises only when it is cancelled."""
        failure = await self._serving.serve(request)
        if failure:
            self._give_up(request, failure)
            return
        request.done = True
        if self._transport is None:
            self._drop([request])
        else:
            self._order.remove(request)
        self._start_ready()
        self._advance()

    def _give_up(self, request: InFlightRequest, reason: str) -> None:
        # A request that waits for this one must not run as if this one had been answered.
        self._drop(waiting for waiting in self._in_flight if not waiting.begun)
        if request.trace is not None:
            request.trace.end()
        self.close(reason)

    def _drop(self, requests: Iterable[InFlightRequest]) -> None:
        """Take requests out of flight: their responses are not written."""
        for request in list(requests):
            self._in_flight.remove(request)
            self._release(request)
            self._long_responses.release(request)
            self._order.remove(request)
            if request.trace is not None:
                request.trace.end()
            if request.task is not None and not request.done:
                request.task.cancel()

    def _release(self, request: InFlightRequest) -> None:
        """Release the request's bytes."""
        if request.message is not None:
            request.message = None
            self._held.release(request.size, asyncio.get_running_loop().time())

    # --- responses --------------------------------------------------------------------------

    def _advance(self) -> None:
        """Write the responses that are next in order; start the long poll that is first."""
        transport, writer = self._transport, self._writer
        if writer is not None and writer.ready:
            self._response_sent()
        while self._in_flight and writer is not None and writer.ready:
            request = self._in_flight[0]
            if not request.done:
                if request.api.long_poll and request.task is None and not self._draining:
                    self._start(request)
                break
            self._in_flight.popleft()
            if request.response is not None:
                self._long_responses.release(request)
                writer.write(request.response, request.shared)
                self.last_active = asyncio.get_running_loop().time()
            self._writing = request.trace
            if writer.ready:
                self._response_sent()
        self._long_responses.admit_next()
        if self._draining and not self.busy and transport is not None:
            if writer is None or writer.empty:
                transport.close()
        elif self._may_begin and len(self._in_flight) < _MAX_IN_FLIGHT // 2:
            asyncio.get_running_loop().call_soon(self._resume)

    def _client_reads(self) -> bool:
        """Whether the client is there and the system has taken every response written to it."""
        return self._writer is not None and self._writer.ready

    def _resume(self) -> None:
        try:
            self._begin_requests()
        except Malformed as e:
            self._refuse(str(e))

    def _refuse(self, reason: str) -> None:
        """Close the connection of a client that breaks the protocol, with one line in the log."""
        if self._transport is None:
            return
        self._tracing.trace_refusal(reason)
        log.warning("closing %s: %s", self._client, reason)
        self._services.stats.malformed += 1
        self._transport.abort()

    def _response_sent(self) -> None:
        """End the trace of the last response: the system has it whole, or the client is gone."""
        if self._writing is not None:
            self._writing.end()
            self._writing = None
