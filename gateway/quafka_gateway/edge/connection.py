"""One client's TCP connection: requests in, answers out, in the order of the requests.

Kafka finishes one request of a connection before it begins the next. So does this gateway, as far
as a client can see: a request waits for earlier ones that touch the same state (`order.py`), and
responses leave in request order. What remains runs concurrently, so that pipelined produces share
group commits. Long polls begin at the head of the line, so that a connection never holds more
than one large reply, and later requests wait for them.

Back-pressure is by not reading: at most `_PIPELINE` requests of a connection are under way, a
client that does not read its answers is not read from, and nobody is while the requests of all
clients together are over their bound (`request_memory`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, cast

from quafka_gateway.cluster import parked
from quafka_gateway.cluster.broker_link import UnavailableError
from quafka_gateway.context import RequestContext, Services
from quafka_gateway.edge.progress import Progress
from quafka_gateway.edge.request_decoding import SHORT, Decoded, Decoding, decode_request, order_of
from quafka_gateway.edge.request_intake import RequestIntake
from quafka_gateway.edge.request_order import Turns
from quafka_gateway.edge.request_trace import ConnectionTracing, RequestTrace
from quafka_gateway.edge.response_writer import ResponseWriter
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.handlers.order import Order
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_gateway.responses.error_codes import error_codes, error_codes_in_steps
from quafka_gateway.responses.response_length import is_long
from quafka_gateway.stats import SlowRequest
from quafka_proto.codec import encode_in_steps
from quafka_proto.errors import ErrorCode, Malformed
from quafka_proto.headers import RequestHeader, encode_response, frame_response
from quafka_proto.message import Buffer, Message
from quafka_telemetry.log_context import CURRENT
from quafka_telemetry.slices import SLICE_SECONDS, in_slices
from quafka_telemetry.tracing import NO_SPAN

log = logging.getLogger("quafka.gateway.connection")

_PIPELINE = 64


@dataclass(slots=True, eq=False)
class _Slot:
    """A request's place in the line of answers."""

    header: RequestHeader
    api: AnyApi
    order: Order
    request: Message | None  # None once it is answered: its bytes are not held any longer
    size: int
    trace: RequestTrace | None  # None: not sampled
    task: asyncio.Task[None] | None = None
    answer: list[Buffer] | None = None
    begun: bool = False
    forgotten: bool = False  # by `_turns`
    shared: int = 0  # bytes of the answer that are held anyway
    counted: int = 0  # the others, while it waits for its turn to be written
    done: bool = False
    may_be_long: bool = False
    turn: asyncio.Future[None] | None = None  # of a long answer that is to be made

    @property
    def checks_length(self) -> bool:
        """Whether the answer may be so long that it takes slices of the loop."""
        return self.may_be_long or self.size > SHORT or self.api.long_poll


class KafkaConnection(asyncio.Protocol):
    """Serves one client until it goes, misbehaves or the gateway drains."""

    def __init__(
        self,
        services: Services,
        apis: Mapping[int, AnyApi],
        serial: int,
        on_close: Callable[[KafkaConnection], None],
        may_open: Callable[[KafkaConnection], bool] = lambda _: True,
    ) -> None:
        """`may_open` is asked once the client's address is known; False: refuse it."""
        self._services = services
        self._apis = apis
        self._serial = serial
        self._on_close = on_close
        self._may_open = may_open
        self._intake: RequestIntake  # from `connection_made` on, which is called first
        self._line: deque[_Slot] = deque()  # decoded, not yet answered
        self._turns = Turns(self._line)
        self._decoding: Decoding | None = None  # behind the line: later frames wait for it
        self._long_waits = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        self.host = "?"
        """The client's address, without the port."""
        self._reading = True
        self._writer: ResponseWriter | None = None
        self._draining = False
        self._tracing: ConnectionTracing  # the same
        self._writing: RequestTrace | None = None  # whose answer was not handed over whole
        self.last_active = 0.0
        """Loop time of the last byte from or to the client."""

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        if peer:
            self.host, self._peer = str(peer[0]), f"{peer[0]}:{peer[1]}"
        if not self._may_open(self):
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)
        self._begin()
        self.last_active = asyncio.get_running_loop().time()
        self._tracing = ConnectionTracing(self._services, self._peer, self._serial)

    def _begin(self) -> None:
        services, config = self._services, self._services.config
        rate = config.socket_min_bytes_per_second
        reads = Progress(config.socket_response_stall_ms / 1000, rate)
        assert self._transport is not None
        self._writer = ResponseWriter(
            self._transport, services.response_memory, services.stats, reads
        )
        sends = Progress(config.socket_request_stall_ms / 1000, rate)
        self._held = services.request_memory.open(self.host, self._evict, self._balance_reading)
        self._intake = RequestIntake(services.request_max_bytes, self._held, sends)
        self._frames = self._intake.frames  # whole, not yet begun

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
        self._intake.gone(asyncio.get_running_loop().time())
        # Long polls, long answers, and reads that have not begun, are dropped with their client.
        # Writes go on to their end: a client that sent with acks=0 and left has done nothing wrong.
        self._handed_over()
        self._drop(
            slot
            for slot in self._line
            if slot.done
            or slot.order.long_poll
            or slot.may_be_long
            or not (slot.begun or slot.order.writes)
        )
        self._start_ready()
        self._on_close(self)

    # --- for the listener -------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a request is under way that must be answered before closing."""
        return self._decoding is not None or any(not slot.api.long_poll for slot in self._line)

    def stalled(self, now: float) -> bool:
        """Whether a request has begun to arrive, and does not go on or does so too slowly."""
        return self._reading and self._intake.stalled(now)

    def idle_since(self, now: float) -> float:
        """Seconds since the last byte from or to the client; 0 while it waits, or is waited for."""
        unread = self._writer is not None and self._writer.unread
        return 0.0 if self._line or unread else now - self.last_active

    def unread(self, now: float) -> tuple[int, float]:
        """Bytes of answers that the client has not read, and `ResponseWriter.stuck`."""
        return (0, 0.0) if self._writer is None else (self._writer.unread, self._writer.stuck(now))

    def drain(self) -> None:
        """Take no more requests; close as soon as those under way are answered."""
        self._draining = True
        self._intake.drop(asyncio.get_running_loop().time())
        # A client that loses a long poll asks again. What is behind one has not begun.
        self._drop(dropwhile(lambda slot: not slot.order.long_poll, self._line))
        if self._transport is not None:
            self._transport.pause_reading()
            self._advance()

    def close(self, reason: str) -> None:
        """Close now."""
        if self._transport is not None and not self._transport.is_closing():
            log.info("closing %s: %s", self._peer, reason)
            self._transport.abort()

    async def wait_tasks(self) -> None:
        """Wait until nothing of this connection is running."""
        while self._tasks:  # one that ends may begin the next
            await asyncio.wait(self._tasks)

    # --- requests ---------------------------------------------------------------------------

    def _begin_requests(self) -> None:
        until = 0.0  # known once there is a second request
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
        """Whether there is a request to decode, and room for it in the line."""
        free = self._decoding is None and not self._draining
        return free and bool(self._frames) and len(self._line) < _PIPELINE

    def _balance_reading(self) -> None:
        if self._transport is None or self._draining or self._transport.is_closing():
            return
        full = bool(self._frames) or self._held.full
        if full and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not full and not self._reading:
            self._reading = True
            self._intake.resumed(asyncio.get_running_loop().time())
            self._transport.resume_reading()
        if not self._reading and self._held.full:
            self._held.wait_for_room()

    def _evict(self, reason: str) -> None:
        """Make room for others: this one holds the most."""
        if self._transport is not None and not self._transport.is_closing():
            log.warning("closing %s: %s", self._peer, reason)
            self._transport.abort()

    async def _decode_long(self, decoding: Decoding, frame: bytes) -> None:
        """Decode a long request. Later ones of the connection wait, so that the order holds."""
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
        """Put a request at the end of the line; begin it if it need not wait."""
        header, api, request = decoded.header, decoded.api, decoded.request
        trace = self._tracing.begin(api, header, request, frame)
        slot = _Slot(header, api, order_of(api, request, len(frame)), request, len(frame), trace)
        slot.may_be_long = api.may_be_long(request)
        self._line.append(slot)
        if self._turns.add(slot):
            self._start(slot)

    def _start(self, slot: _Slot) -> None:
        slot.begun = True
        slot.task = self._spawn(self._serve(slot))

    def _finish(self, slot: _Slot) -> None:
        """The handler is done: requests that waited for it may begin."""
        slot.done = True
        if self._transport is None:
            self._drop([slot])
        else:
            self._turns.forget(slot)
        self._start_ready()

    def _start_ready(self) -> None:
        for slot in self._turns.ready():
            self._start(slot)

    def _drop(self, slots: Iterable[_Slot]) -> None:
        """Take requests out of the line: nobody waits for their answers."""
        for slot in list(slots):
            self._line.remove(slot)
            self._release(slot)
            self._uncount(slot)
            self._turns.forget(slot)
            if slot.trace is not None:
                slot.trace.over()
            if slot.task is not None and not slot.done:
                slot.task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, slot: _Slot) -> None:
        """Run the handler and put its answer in the slot. Never raises but when cancelled."""
        header = slot.header
        waited = parked.begin()
        began = time.perf_counter()
        context = RequestContext(
            self._services,
            header.api_version,
            header.client_id,
            self._serial,
            NO_SPAN if slot.trace is None else slot.trace.request,
            "/" + self.host,
            header.correlation_id,
        )
        CURRENT.set(context)
        try:
            if slot.may_be_long:
                response = await self._long_answer(slot, context)
            else:
                response = await slot.api.handle(slot.request, context)
                await self._encode(slot, response)
        except UnavailableError as e:
            # There is no error code for "ask again" in these answers; a closed connection is.
            self._count(slot, (ErrorCode.BROKER_NOT_AVAILABLE,), began, waited)
            self._give_up(slot, f"{slot.api.name} needs the broker: {e}")
            return
        except Exception:
            log.exception("%s v%d from %s failed", slot.api.name, header.api_version, self._peer)
            self._count(slot, (ErrorCode.UNKNOWN_SERVER_ERROR,), began, waited)
            self._give_up(slot, "internal error")
            return
        finally:
            self._release(slot)
        self._count(slot, await self._errors(slot, response), began, waited)
        self._finish(slot)
        self._advance()

    async def _errors(
        self, slot: _Slot, response: Message | EncodedResponse | None
    ) -> Collection[int]:
        if isinstance(response, Message) and slot.checks_length and is_long(response):
            return await in_slices(error_codes_in_steps(response))
        return error_codes(response)

    async def _long_answer(
        self, slot: _Slot, context: RequestContext
    ) -> Message | EncodedResponse | None:
        """Make an answer that may be long, when the client has read the one before it."""
        while self._next_long() is not slot:
            slot.turn = asyncio.get_running_loop().create_future()
            self._long_waits += 1
            try:
                await slot.turn
            finally:
                self._long_waits -= 1
        async with self._services.long_responses.admitted():
            response = await slot.api.handle(slot.request, context)
            await self._encode(slot, response)
            return response

    def _next_long(self) -> _Slot | None:
        """The first of the line whose answer may be long, once the client has read the others.

        Depends on what is before it in the line alone: so nothing waits for what is behind it.
        """
        if self._writer is None or not self._writer.ready:
            return None
        return next((slot for slot in self._line if slot.may_be_long), None)

    def _wake_long(self) -> None:
        following = self._next_long() if self._long_waits else None
        if following is not None and following.turn is not None and not following.turn.done():
            following.turn.set_result(None)

    async def _encode(self, slot: _Slot, response: Message | EncodedResponse | None) -> None:
        """Make the answer's bytes. Raises ValueError where something in it has no room."""
        if response is None:
            return
        correlation_id, version = slot.header.correlation_id, slot.header.api_version
        with NO_SPAN if slot.trace is None else slot.trace.encoding():
            if isinstance(response, EncodedResponse):
                slot.answer = frame_response(correlation_id, response.kind, version, response.body)
                slot.shared = response.shared
            elif slot.checks_length and is_long(response):
                body = await in_slices(encode_in_steps(response, version))
                slot.answer = frame_response(correlation_id, type(response), version, body)
            else:
                slot.answer = encode_response(correlation_id, response, version)
        if slot.may_be_long and self._transport is not None:
            slot.counted = sum(map(len, slot.answer)) - slot.shared
            self._services.response_memory.hold(slot.counted)

    def _uncount(self, slot: _Slot) -> None:
        if slot.counted:
            self._services.response_memory.release(slot.counted)
            slot.counted = 0

    def _give_up(self, slot: _Slot, reason: str) -> None:
        # What waits for this request must not run as if it had been answered.
        self._drop(waiting for waiting in self._line if not waiting.begun)
        if slot.trace is not None:
            slot.trace.over()
        self.close(reason)

    def _count(
        self, slot: _Slot, errors: Collection[int], began: float, waited: parked.Parked
    ) -> None:
        stats = self._services.stats
        seconds = time.perf_counter() - began - waited.seconds
        trace = slot.trace
        if trace is None:
            trace = self._tracing.late(slot.api, slot.header, errors, seconds, waited.seconds)
        else:
            trace.answered(errors, seconds, waited.seconds)
        if stats.count_request(slot.api.name, errors, seconds, waited.seconds):
            stats.slow.append(
                SlowRequest(
                    time.time(),
                    slot.api.name,
                    slot.header.client_id or "",
                    self._peer,
                    seconds,
                    waited.seconds,
                    tuple(errors),
                    "" if trace is None else trace.trace_id,
                )
            )

    def _release(self, slot: _Slot) -> None:
        """The request's bytes are not needed any more."""
        if slot.request is not None:
            slot.request = None
            self._held.release(slot.size, asyncio.get_running_loop().time())

    # --- answers ----------------------------------------------------------------------------

    def _advance(self) -> None:
        """Write what is answered at the head of the line, start the long poll that is next."""
        transport, writer = self._transport, self._writer
        if writer is not None and writer.ready:
            self._handed_over()
        while self._line and writer is not None and writer.ready:
            slot = self._line[0]
            if not slot.done:
                if slot.api.long_poll and slot.task is None and not self._draining:
                    self._start(slot)
                break
            self._line.popleft()
            if slot.answer is not None:
                self._uncount(slot)
                writer.write(slot.answer, slot.shared)
                self.last_active = asyncio.get_running_loop().time()
            self._writing = slot.trace
            if writer.ready:
                self._handed_over()
        self._wake_long()
        if self._draining and not self.busy and transport is not None:
            if writer is None or writer.empty:
                transport.close()
        elif self._may_begin and len(self._line) < _PIPELINE // 2:
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        try:
            self._begin_requests()
        except Malformed as e:
            self._refuse(str(e))

    def _refuse(self, reason: str) -> None:
        """A client that does not speak the protocol loses its connection, and one line is said."""
        if self._transport is None:
            return
        self._tracing.refused(reason)
        log.warning("closing %s: %s", self._peer, reason)
        self._services.stats.malformed += 1
        self._transport.abort()

    def _handed_over(self) -> None:
        """The system has taken everything that was written; or the client is gone."""
        if self._writing is not None:
            self._writing.over()
            self._writing = None
