"""Serves produces that repeat the connection's last one, without decoding them and without a task.

For a request of one small batch, decoding, a task and encoding cost the gateway more than all else.
The repeated part is known from the last request (`handlers/repeated_produce.py`), and the op is
begun and answered by plain calls. Requests that need more are decoded and served as usual: those
of clients with quotas, sampled ones, and those for topics that the client may not write to.
See docs/adr/0059-produces-that-repeat.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import Services
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.edge.in_flight import InFlightRequest
from quafka_gateway.edge.request_decoding import Decoded
from quafka_gateway.edge.request_serving import RequestServing
from quafka_gateway.handlers.kafka_api import RepeatedRequest
from quafka_gateway.security.session import ClientSession
from quafka_loop import clock
from quafka_loop.eager_task import DirectFuture
from quafka_loop.garbage import ignore
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps
from quafka_proto.errors import ErrorCode

log = logging.getLogger("quafka.gateway.connection")


class DirectProduces:
    """The produces of one connection that repeat the last one.

    Attributes:
        last: what such a request begins with; None: none is expected.
    """

    def __init__(
        self,
        services: Services,
        session: ClientSession,
        client: ConnectedClient,
        serving: RequestServing,
        release: Callable[[InFlightRequest], None],
        ended: Callable[[InFlightRequest], None],
        failed: Callable[[InFlightRequest, str], None],
    ) -> None:
        """`release` is called when a request's bytes are not needed any more, `ended` when its
        response is made, `failed` with the reason if it has none."""
        self.last: RepeatedRequest | None = None
        self._services = services
        self._session = session
        self._client = client
        self._serving = serving
        self._release = release
        self._ended = ended
        self._failed = failed

    def learn(self, decoded: Decoded, frame: bytes) -> None:
        """Take note of a request that was decoded."""
        header, api, request, end = decoded
        if api.repeated is not None:
            self.last = api.repeated(header, request, frame, end)

    def may_begin(self, repeated: RepeatedRequest) -> bool:
        """Whether a batch needs nothing but to be appended."""
        if self._serving.timed or self._services.quotas.of(self._session.tenant) is not None:
            return False
        authorizer = self._services.authorizer
        if authorizer is None:
            return True
        access = self._session.access_by(authorizer, self._client.host)
        return repeated.is_allowed(self._session.tenant, access)

    def start(self, request: InFlightRequest, repeated: RepeatedRequest, op: ProduceOp) -> None:
        """Append the batch."""
        began = clock.perf_counter()
        ops = ProduceOps([op], repeated.acks)
        topics = self._session.tenant.topics
        answers = topics.begin_produce(ops, self._client.serial, repeated.timeout)
        request.task = answers
        answers.add_direct_callback(partial(self._answered, request, repeated, ops, answers, began))

    def close(self) -> None:
        """The client is gone, and no request is in flight."""
        self._release = self._ended = self._failed = ignore

    def _answered(
        self,
        request: InFlightRequest,
        repeated: RepeatedRequest,
        ops: ProduceOps,
        answered: DirectFuture[list[ProduceOpResp]],
        began: float,
    ) -> None:
        if answered.cancelled() and not request.ordered:
            return  # dropped
        code, failure = 0, ""
        try:
            answers = answered.result()
            self._session.tenant.reader.produce_acknowledged(ops, answers)
            request.response, code = repeated.response(
                request.header.correlation_id, ops.partitions[0], answers[0]
            )
        except BrokerUnavailableError as e:
            code, failure = ErrorCode.BROKER_NOT_AVAILABLE, f"Produce needs the broker: {e}"
        except (Exception, asyncio.CancelledError):
            log.exception("Produce from %s failed", self._client)
            code, failure = ErrorCode.UNKNOWN_SERVER_ERROR, "internal error"
        self._release(request)
        self._serving.count(request, (code,) if code else (), clock.perf_counter() - began, 0.0)
        if not request.ordered:
            return  # dropped
        if failure:
            self._failed(request, failure)
        else:
            self._ended(request)
