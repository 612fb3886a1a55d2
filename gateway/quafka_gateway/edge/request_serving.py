"""Runs the handler of a request, encodes its response and counts both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.cluster.parked_time import NEVER_PARKED, begin_request
from quafka_gateway.context import RequestContext, Services
from quafka_gateway.edge.audited import handle_audited, record_if_denied
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.edge.in_flight import InFlightRequest
from quafka_gateway.edge.long_responses import LongResponses
from quafka_gateway.edge.request_trace import ConnectionTracing
from quafka_gateway.edge.throttling import set_throttle_time, stated
from quafka_gateway.quotas.kinds import QuotaKind
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_gateway.responses.error_codes import error_codes, error_codes_in_steps
from quafka_gateway.responses.response_length import is_long
from quafka_gateway.security.session import ClientSession
from quafka_gateway.stats import SlowRequest
from quafka_loop import clock
from quafka_loop.eager_task import EagerTask, TimedTask, current_timed_task
from quafka_loop.garbage import ignore
from quafka_loop.log_context import CURRENT
from quafka_loop.slices import in_slices
from quafka_proto.codec import encode_in_steps
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import encode_response, frame_response
from quafka_proto.message import Message
from quafka_telemetry.tracing import NO_SPAN

log = logging.getLogger("quafka.gateway.connection")


class RequestServing:
    """Serves the requests of one connection, each in a task of its own."""

    def __init__(
        self,
        services: Services,
        session: ClientSession,
        client: ConnectedClient,
        tracing: ConnectionTracing,
        long_responses: LongResponses,
        release: Callable[[InFlightRequest], None],
        give_up: Callable[[InFlightRequest, str], None],
        throttle: Callable[[float], None],
    ) -> None:
        """`release` is called when a request's bytes are not needed any more, `give_up` with the
        reason if the request has no response, so that the connection must be closed, `throttle`
        with the seconds for which the client must wait."""
        self._loop = asyncio.get_running_loop()  # to ask for it costs a system call
        self._services = services
        self._session = session
        self._client = client
        self._client_host = client.kafka_host
        self._tracing = tracing
        self._long_responses = long_responses
        self._release = release
        self._give_up = give_up
        self._throttle = throttle

    @property
    def timed(self) -> bool:
        """Whether the time of requests is charged."""
        org = self._services.quotas.of(self._session.tenant)
        return org is not None and org.times_requests

    def start(self, request: InFlightRequest) -> EagerTask[bool]:
        """Serve the request in a task."""
        if self.timed:
            return TimedTask(self.serve(request), self._loop)
        return EagerTask(self.serve(request), self._loop)

    async def serve(self, request: InFlightRequest) -> bool:
        """Put the encoded response into the request; return False if it has been given up."""
        header, trace = request.header, request.trace
        parked = begin_request() if request.api.may_park else NEVER_PARKED
        began = clock.perf_counter()
        context = RequestContext(
            self._services,
            self._session,
            header.api_version,
            header.client_id,
            self._client.serial,
            NO_SPAN if trace is None else trace.request,
            self._client_host,
            header.correlation_id,
            request.waited,
            size=request.size,
            mute=self._throttle,
        )
        CURRENT.set(context)
        failure = ""
        try:
            if request.may_be_long:
                async with self._long_responses.admitted(request):
                    errors = await _answer(request, context)
                    self._long_responses.hold(request)
            else:
                errors = await _answer(request, context)
        except BrokerUnavailableError as e:
            # A closed connection means "try again".
            errors, failure = (ErrorCode.BROKER_NOT_AVAILABLE,), request.needs_broker(e)
        except Exception:
            log.exception(
                "%s v%d from %s failed", request.api.name, header.api_version, self._client
            )
            errors, failure = (ErrorCode.UNKNOWN_SERVER_ERROR,), "internal error"
        finally:
            self._release(request)
        if request.prediction is not None:  # a response that is throttled would be throttled again
            request.prediction.learn(None if context.throttled else context.idle)
        if context.throttled:
            self._throttle(context.throttled)
        seconds = clock.perf_counter() - began - parked.seconds
        self.count(request, errors, seconds, parked.seconds + request.waited)
        if failure:
            self._give_up(request, failure)
        return not failure

    def close(self) -> None:
        """The client is gone, and no request is in flight; tasks of dropped ones may still end."""
        self._release = self._give_up = self._throttle = ignore
        self._long_responses.close()

    def hurry(self) -> None:
        """Send held heartbeats at once: a request waits behind them."""
        self._session.tenant.groups.hurry()

    def count(
        self,
        request: InFlightRequest,
        errors: Collection[int],
        seconds: float,
        parked_seconds: float,
    ) -> None:
        """Count the request; end its trace, or begin one late if it was slow or has failed."""
        api, trace = request.api, request.trace
        if trace is None:
            trace = self._tracing.trace_late(api, request.header, errors, seconds, parked_seconds)
        else:
            trace.begin_write(errors, seconds, parked_seconds)
        self._session.tenant.traffic.requests += 1
        stats = self._services.stats
        if stats.count_request(api.name, errors, seconds, parked_seconds):
            stats.slow.append(
                SlowRequest(
                    clock.time(),
                    api.name,
                    request.header.client_id or "",
                    str(self._client),
                    seconds,
                    parked_seconds,
                    tuple(errors),
                    "" if trace is None else trace.trace_id,
                )
            )


async def _answer(request: InFlightRequest, context: RequestContext) -> Collection[int]:
    """Put the encoded response into the request; return the error codes in it.

    Raises ValueError if a field cannot hold its value.
    """
    api = request.api
    if api.audited:
        response = await handle_audited(request, context)
    else:
        response = await api.handle(request.message, context)
    if context.services.quotas.orgs:
        _charge_time(request, context)
    if response is None:
        return ()
    if context.throttled:
        set_throttle_time(response, context.throttled)
    if request.checks_length and isinstance(response, Message) and is_long(response):
        with NO_SPAN if request.trace is None else request.trace.start_encoding():
            body = await in_slices(encode_in_steps(response, context.version))
            request.response = frame_response(
                context.correlation_id, type(response), context.version, body
            )
        errors: Collection[int] = await in_slices(error_codes_in_steps(response))
        if errors:
            record_if_denied(request, context, response, errors)
        return errors
    if request.trace is None:
        _encode(request, response, context)
    else:
        with request.trace.start_encoding():
            _encode(request, response, context)
    errors = error_codes(response)
    if errors:
        record_if_denied(request, context, response, errors)
    return errors


def _charge_time(request: InFlightRequest, context: RequestContext) -> None:
    """Charge the time that decoding and handling took on the loop and in threads."""
    quotas, task = context.quotas, current_timed_task()
    if quotas is None or quotas.requests is None or task is None:
        return
    seconds = request.decoding + task.seconds
    wait = quotas.requests.charge(100 * seconds, clock.monotonic())
    if wait:
        context.throttle(
            QuotaKind.REQUESTS, min(wait, context.services.config.quota_window_size_seconds)
        )


def _encode(
    request: InFlightRequest, response: Message | EncodedResponse, context: RequestContext
) -> None:
    correlation_id, version = request.header.correlation_id, request.header.api_version
    if isinstance(response, EncodedResponse):
        body, request.shared = response.body, response.shared
        if context.throttled:
            body = stated(response, version, context.throttled)
        request.response = frame_response(correlation_id, response.kind, version, body)
    else:
        request.response = encode_response(correlation_id, response, version)
