"""The requests of one connection, from their frames until their responses are written.

Kafka finishes one request of a connection before it begins the next. So does this gateway, as far
as a client can see: a request waits for earlier requests that touch the same state
(`RequestOrder`), and responses leave in request order. Other requests run concurrently, so that
pipelined produces share group commits. A long poll begins when it is the first request in flight,
so that a connection never holds more than one large response, and later requests wait for it.

A request runs as an `EagerTask`: its op leaves for the broker in the call that receives its bytes,
and its response leaves for the client in the call that receives the broker's answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import dropwhile, islice
from typing import Any, NamedTuple

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import Services
from quafka_gateway.edge.authentication import SessionGate
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.edge.in_flight import InFlightRequest
from quafka_gateway.edge.long_responses import LongResponses
from quafka_gateway.edge.org_turn import OrgTurn
from quafka_gateway.edge.predictions import Predictions
from quafka_gateway.edge.request_decoding import (
    Decoded,
    Decoding,
    decode_at_once,
    decode_request,
    order_of,
)
from quafka_gateway.edge.request_order import RequestOrder
from quafka_gateway.edge.request_serving import RequestServing
from quafka_gateway.edge.request_trace import ConnectionTracing, RequestTrace
from quafka_gateway.edge.response_writer import ResponseWriter
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.handlers.prediction import AnyPrediction
from quafka_gateway.memory import HeldRequests
from quafka_gateway.security.session import ClientSession
from quafka_loop import clock
from quafka_loop.eager_task import DirectFuture, EagerTask
from quafka_loop.fair_turns import PIECE_SECONDS
from quafka_loop.garbage import ignore
from quafka_loop.slices import SLICE_SECONDS
from quafka_proto.errors import ErrorCode, Malformed

log = logging.getLogger("quafka.gateway.connection")

_MAX_IN_FLIGHT = 64


class PipelineEvents(NamedTuple):
    """What a pipeline calls.

    Attributes:
        malformed: with the reason, when the client breaks the protocol.
        failed: with the reason, when a request has no response, so that the client must be closed.
        advanced: after each slice of work: there may be room for more frames.
        throttled: with seconds, when the client is over a quota and must wait.
    """

    malformed: Callable[[str], None]
    failed: Callable[[str], None]
    advanced: Callable[[], None]
    throttled: Callable[[float], None] = lambda _: None


_NO_EVENTS = PipelineEvents(ignore, ignore, ignore, ignore)


class RequestPipeline:
    """Begins the requests of one connection in their order, and answers them in their order.

    At most `_MAX_IN_FLIGHT` requests are in flight; later frames wait.
    """

    def __init__(
        self,
        services: Services,
        session: ClientSession,
        apis: Mapping[int, AnyApi],
        client: ConnectedClient,
        tracing: ConnectionTracing,
        held: HeldRequests,
        frames: deque[bytes],
        writer: ResponseWriter,
        events: PipelineEvents,
        turn: OrgTurn,
        gate: SessionGate | None = None,
    ) -> None:
        """`frames` are whole and counted in `held`; call `run` when there are more of them.

        `turn`: when the client's org has its turn on the event loop.
        `gate`: decides which frames are requests, if the client's session may end.
        """
        self._loop = asyncio.get_running_loop()
        self._apis = apis
        self._turn = turn
        self._session = session
        self._restricts = services.authorizer is not None
        self._client = client
        self._tracing = tracing
        self._held = held
        self._frames = frames
        self._writer: ResponseWriter | None = writer  # None: the client is gone
        self._events = events
        self._gate = gate
        self._in_flight: deque[InFlightRequest] = deque()  # decoded, not yet answered
        self._order = RequestOrder(self._in_flight)
        self._long_responses = LongResponses(services, writer, self._in_flight, self._client_reads)
        self._serving = RequestServing(
            services,
            session,
            client,
            tracing,
            self._long_responses,
            self._release,
            self._give_up,
            events.throttled,
        )
        self._predictions = Predictions(services, session, client)
        self._decoding: Decoding | None = None  # later frames wait for it
        self._leaving: set[DirectFuture[Any]] = set()  # tasks of no request in flight
        self._running = False  # in a slice, or between two
        self._draining = False
        self.muted = False
        """Whether no further request begins; those in flight are answered."""
        self._writing: RequestTrace | None = None  # of the response that is not yet sent whole

    # --- for the connection -----------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no request is in flight."""
        return not self._in_flight

    @property
    def busy(self) -> bool:
        """Whether a request is in flight that must be answered before closing."""
        if self._decoding is not None:
            return True
        return any(not request.order.long_poll for request in self._in_flight)

    def run(self) -> None:
        """Begin and answer requests, for one slice of the event loop at a time.

        A request may be answered while it is begun, and that may free others. The call for that
        returns at once, and the loop in `_slice` continues: a chain of requests does not recurse.
        """
        if not self._running:
            self._running = True
            if self._turn.turns.shared:
                self._turn.run(self._slice)
            else:
                self._slice()

    def drain(self) -> None:
        """Begin no request that is not in flight. The caller has dropped the frames."""
        self._draining = True
        # A client that loses a long poll sends it again. Requests after a long poll have not begun.
        self._drop(dropwhile(lambda request: not request.order.long_poll, self._in_flight))

    def connection_lost(self) -> None:
        """Continue without the client. The caller has dropped the frames.

        Long polls, long responses, and reads that have not begun, are dropped with their client.
        Writes are completed: a client may send with acks=0 and leave.
        """
        self._writer = None
        self._response_sent()
        self._drop(
            request
            for request in self._in_flight
            if request.done
            or request.order.long_poll
            or request.may_be_long
            or not (request.begun or request.order.writes)
        )
        self.run()

    async def wait_ended(self) -> None:
        """Wait until no request is being served."""
        while True:
            tasks: set[asyncio.Future[Any]] = {*self._leaving}
            begun = (each.task for each in self._in_flight if each.task is not None)
            tasks.update(task for task in begun if not task.done())
            if tasks:
                await asyncio.wait(tasks)  # a task that ends may begin the next
            elif self._running:
                await asyncio.sleep(0)
            else:
                return

    # --- one slice --------------------------------------------------------------------------

    def _slice(self) -> None:
        until = 0.0  # set when there is more than one step
        frames, order, in_flight = self._frames, self._order, self._in_flight
        try:
            # Most steps have nothing to begin or to answer: looking here saves the calls.
            while ((frames or order.changed) and self._begin_next()) or (
                (in_flight or self._writing is not None) and self._answer_next()
            ):
                now = clock.perf_counter()
                until = until or now + (PIECE_SECONDS if self._turn.turns.shared else SLICE_SECONDS)
                if now >= until:
                    self._go_on()
                    break
            else:
                self._running = False
        except Malformed as e:
            self._running = False
            self._events.malformed(str(e))
        except Exception:  # must not reach the mesh client, which may be the caller
            self._running = False
            log.exception("serving %s failed", self._client)
            self._events.failed("internal error")
        if self._long_responses.waiting:
            self._long_responses.admit_next()
        self._events.advanced()
        if self._writer is None:
            self._close_if_over()

    def _close_if_over(self) -> None:
        """Drop the connection and the parts, once the client is gone and nothing is served.

        They refer to each other: otherwise only a garbage collection would free them, and one after
        hundreds of closed connections stops the loop for a while.
        """
        if self._decoding is None and all(each.over for each in self._in_flight):
            self._events = _NO_EVENTS
            self._gate = None
            self._serving.close()

    def _go_on(self) -> None:
        """Run the next slice in a later turn of the loop."""
        if self._turn.turns.shared:
            self._turn.defer(self._slice)
        else:
            self._loop.call_soon(self._slice)

    # --- requests ---------------------------------------------------------------------------

    def _begin_next(self) -> bool:
        """Begin a request that may begin, before any response is written: so the ops of all
        requests that have arrived leave together. False: there is none. Raises Malformed.
        """
        may_decode = self._decoding is None and not self._draining and not self.muted
        if self._frames and may_decode and len(self._in_flight) < _MAX_IN_FLIGHT:
            gate = self._gate
            if gate is None or gate.passes(self._frames[0], idle=not self._in_flight):
                self._begin(self._frames.popleft())
                return True
            if gate.takes:
                frame = self._frames.popleft()
                self._held.release(len(frame), self._loop.time())
                gate.take(frame)
                return True
        if self._order.changed:
            ready = self._order.next_ready()
            if ready is not None:
                self._start(ready)
                return True
        return False

    def _begin(self, frame: bytes) -> None:
        """Decode a request and put it in flight. Raises Malformed."""
        found = self._predictions.find(frame)
        if found is not None and self._begin_predicted(*found, frame):
            return
        began = clock.perf_counter() if self._serving.timed else 0.0
        try:
            decoded = decode_request(self._apis, frame)
        except Malformed:
            self._held.release(len(frame), self._loop.time())
            raise
        if isinstance(decoded, Decoding):
            self._decoding = decoded
            self._leave(EagerTask(self._decode_long(decoded, frame), self._loop))
        else:
            self._add(decoded, frame, clock.perf_counter() - began if began else 0.0)

    async def _decode_long(self, decoding: Decoding, frame: bytes) -> None:
        """Decode a long request. Later requests of the connection wait, so that order holds."""
        try:
            decoded = await decoding.finish()
        except Malformed as e:
            self._held.release(len(frame), self._loop.time())
            self._events.malformed(str(e))
            return
        finally:
            self._decoding = None
        if self._writer is None and not decoded.api.order.writes:
            self._held.release(len(frame), self._loop.time())
            self._close_if_over()
            return
        self._add(decoded, frame)
        self.run()

    def _add(self, decoded: Decoded, frame: bytes, decoding: float = 0.0) -> None:
        """Put a request in flight; begin it unless it must wait."""
        header, api, message, _ = decoded
        trace = self._tracing.sample(api, header, message, frame) if self._tracing.on else None
        self._add_sampled(decoded, frame, trace, decoding)

    def _add_sampled(
        self, decoded: Decoded, frame: bytes, trace: RequestTrace | None, decoding: float = 0.0
    ) -> None:
        header, api, message, end = decoded
        size = len(frame)
        request = InFlightRequest(
            header,
            api,
            order_of(api, message, size, self._session.tenant if self._restricts else None),
            message,
            size,
            trace,
            api.may_be_long(message),
            prediction=api.predict(header, message, frame, end) if api.predict else None,
            decoding=decoding,
        )
        self._put_in_flight(request)
        if self._order.add(request):
            self._start(request)

    def _put_in_flight(self, request: InFlightRequest) -> None:
        if self._in_flight and self._in_flight[-1].api.held:
            self._serving.hurry()  # responses leave in order: this one would wait for that
        self._in_flight.append(request)
        self._session.tenant.traffic.received += request.size

    def _begin_predicted(self, prediction: AnyPrediction, news: Any, frame: bytes) -> bool:
        """Put a predicted request in flight, not decoded unless it must wait or is sampled.

        A long poll is predicted only while it is alone. False: this one is not.
        """
        header = prediction.header(frame)
        api = self._apis[header.api_key]
        if api.long_poll and self._in_flight:
            return False
        if self._tracing.on:
            trace = self._tracing.sample(api, header, None, frame, prediction.records(news))
            if trace is not None:
                self._add_sampled(decode_at_once(self._apis, frame), frame, trace)
                return True
        request = InFlightRequest(
            header, api, api.order, None, len(frame), None, False, prediction=prediction
        )
        self._put_in_flight(request)
        may_begin = self._order.add(request) or (api.long_poll and self._client_reads())
        if may_begin:
            request.begun = True
            task = prediction.begin(news, self._predictions)
            if task is not None:
                request.task = task
                kept = frame if api.long_poll else b""
                arrived = self._loop.time()
                task.add_direct_callback(partial(self._happened, request, news, kept, arrived))
                return True
        self._decode_after_all(request, frame)
        return True

    def _happened(self, request: InFlightRequest, news: Any, frame: bytes, arrived: float) -> None:
        """Called at the end of what a predicted request waits for."""
        task, prediction = request.task, request.prediction
        assert task is not None and prediction is not None, "it was begun"  # noqa: PT018
        if task.cancelled() and not request.ordered:
            return  # dropped
        now = self._loop.time()
        seconds, parked = now - arrived, 0.0
        if request.order.long_poll:
            seconds, parked = 0.0, seconds
        answer = None
        code, failure = 0, ""
        try:
            answer = prediction.answer(request.header.correlation_id, news, task, self._predictions)
        except BrokerUnavailableError as e:
            code, failure = ErrorCode.BROKER_NOT_AVAILABLE, request.needs_broker(e)
        except (Exception, asyncio.CancelledError):
            log.exception("%s from %s failed", request.api.name, self._client)
            code, failure = ErrorCode.UNKNOWN_SERVER_ERROR, "internal error"
        if answer is None and not failure:
            request.waited = parked
            self._decode_after_all(request, frame)
            self.run()
            return
        if answer is not None:
            request.response, code = answer
        self._release(request, now)
        self._serving.count(request, (code,) if code else (), seconds, parked)
        if not request.ordered:
            return  # dropped
        if failure:
            self._give_up(request, failure)
        else:
            self._ended(request)

    def _decode_after_all(self, request: InFlightRequest, frame: bytes) -> None:
        """Let the handler serve a predicted request, a long poll for what is left of its wait."""
        request.message = decode_at_once(self._apis, frame).request
        request.begun = False

    def _start(self, request: InFlightRequest) -> None:
        request.begun = True
        task = request.task = self._serving.start(request)
        if task.done():
            self._served(request, task)
        else:
            task.add_direct_callback(partial(self._served, request, task))

    def _served(self, request: InFlightRequest, task: EagerTask[bool]) -> None:
        """Called at the end of a request's task, which has made the response."""
        if not request.ordered:
            return  # dropped
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:  # a defect, or what the handler waited for was cancelled
            log.error("%s from %s failed", request.api.name, self._client, exc_info=error)
            self._give_up(request, "internal error")
            return
        if not task.result():
            if self._writer is None:
                self._close_if_over()
            return
        if request.prediction is not None:
            self._predictions.expect(request.prediction)
        self._ended(request)

    def _ended(self, request: InFlightRequest) -> None:
        """A request's response is made."""
        request.done = True
        if self._writer is None:
            self._drop([request])
        else:
            self._order.remove(request)
        self.run()

    def _give_up(self, request: InFlightRequest, reason: str) -> None:
        # The client sends all of them again. A request that waits for this one must not run as if
        # it had been answered. A later produce whose op still waits for the broker must not reach
        # the log first: a log that was restored would store it, and then refuse this one.
        later = islice(dropwhile(lambda each: each is not request, self._in_flight), 1, None)
        self._drop(each for each in later if each.order.in_lane)
        self._drop(each for each in self._in_flight if not each.begun)
        if request.trace is not None:
            request.trace.end()
        self._events.failed(reason)
        if self._writer is None:
            self._close_if_over()

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
                self._leave(request.task)

    def _leave(self, task: DirectFuture[Any]) -> None:
        """Let `wait_ended` wait for the task."""
        if not task.done():
            self._leaving.add(task)
            task.add_direct_callback(partial(self._leaving.discard, task))

    def _release(self, request: InFlightRequest, now: float | None = None) -> None:
        """Release the request's bytes. `now`: the loop's time, if the caller has it."""
        if request.size:
            size, request.size, request.message = request.size, 0, None
            self._held.release(size, self._loop.time() if now is None else now)

    # --- responses --------------------------------------------------------------------------

    def _answer_next(self) -> bool:
        """Write the response that is next in order, or start the long poll that is."""
        writer, in_flight = self._writer, self._in_flight
        if writer is None or not writer.ready:
            return False
        if self._writing is not None:
            self._response_sent()
        if not in_flight:
            return False
        request = in_flight[0]
        if not request.done:
            if not request.order.long_poll or request.begun or self._draining:
                return False
            self._start(request)
            return True
        in_flight.popleft()
        self._writing = request.trace
        if request.response is not None:
            self._long_responses.release(request)
            self._session.tenant.traffic.sent += writer.write(request.response, request.shared)
        return True

    def _client_reads(self) -> bool:
        """Whether the client is there and the system has taken every response written to it."""
        return self._writer is not None and self._writer.ready

    def _response_sent(self) -> None:
        """End the trace of the last response: the system has it whole, or the client is gone."""
        if self._writing is not None:
            self._writing.end()
            self._writing = None
