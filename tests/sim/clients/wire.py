"""Connections of a client to gateways: many requests in flight, answers in order, time limits.

A request without an answer in time ends its connection, as in Kafka's Java client. Then it is not
known whether it was carried out; the client continues at another gateway.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

from quafka_client.sasl import Credentials
from quafka_proto.codec import decode
from quafka_proto.headers import decode_response_header, encode_request
from quafka_proto.message import Request, Response
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.sim.clients.job import Gateway, Job

REQUEST_S = 10.0
"""A request without an answer for so long has failed (request.timeout.ms)."""
CONNECT_S = 5.0
MECHANISM = "SCRAM-SHA-256"
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.1, 1.0
_NEWEST = 99

R = TypeVar("R", bound=Response)


class LostError(Exception):
    """There is no answer; the request may be carried out nevertheless."""


class _Waiting(NamedTuple):
    correlation_id: int
    answer: type[Response]
    version: int
    deadline: float
    future: asyncio.Future[Any]


class Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self, gateway: Gateway, client_id: str) -> None:
        """For `Link`, which connects it."""
        self.gateway = gateway.name
        self.is_open = False
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_id = 0
        self._versions: dict[int, int] = {}

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("connection lost")

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        at, end = 0, len(buffer)
        while end - at >= 4:
            after = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if after > end:
                break
            self._answered(buffer[at + 4 : after])
            at = after
        self._buffer = buffer[at:]

    # --- requests ---------------------------------------------------------------------------

    def send(
        self, request: Request, answer: type[R], *, newest: int = _NEWEST, within: float = REQUEST_S
    ) -> asyncio.Future[R]:
        """Send a request; the future gets its answer, or LostError."""
        key = request.api_key
        version = min(newest, request.versions.high, self._versions.get(key, _NEWEST))
        return self._send(request, answer, version, within)

    async def call(
        self, request: Request, answer: type[R], *, newest: int = _NEWEST, within: float = REQUEST_S
    ) -> R:
        """Send a request and wait for its answer. Raises LostError."""
        return await self.send(request, answer, newest=newest, within=within)

    def close(self) -> None:
        """Disconnect."""
        self._end("closed")

    def _send(
        self, request: Request, answer: type[R], version: int, within: float
    ) -> asyncio.Future[R]:
        future: asyncio.Future[R] = self._loop.create_future()
        if self._transport is None or not self.is_open:
            future.set_exception(LostError("not connected"))
            return future
        self._last_id += 1
        deadline = self._loop.time() + within
        self._waiting.append(_Waiting(self._last_id, answer, version, deadline, future))
        frame = encode_request(self._last_id, self._client_id, request, version)
        self._transport.write(b"".join(frame))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._time_is_up)
        return future

    def _answered(self, frame: bytes) -> None:
        waiting = self._waiting.popleft()
        correlation_id, at = decode_response_header(waiting.answer, waiting.version, frame)
        assert correlation_id == waiting.correlation_id, "answers in another order than requests"
        if not waiting.future.done():
            waiting.future.set_result(decode(waiting.answer, waiting.version, frame, at))

    def _time_is_up(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        first = min(waiting.deadline for waiting in self._waiting)
        if first <= self._loop.time():
            self._end("no answer in time")
        else:
            self._timer = self._loop.call_at(first, self._time_is_up)

    def _end(self, why: str) -> None:
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(LostError(why))
                each.future.exception()  # whoever waits gets it; nobody need wait

    # --- beginning --------------------------------------------------------------------------

    async def negotiate(self, login: tuple[str, str] | None) -> None:
        """Log in, and learn the server's versions. Raises LostError."""
        if login is not None:
            await self._log_in(*login)
        request = ApiVersionsRequest(client_software_name="simulated", client_software_version="1")
        answer = await self._send(request, ApiVersionsResponse, 3, REQUEST_S)
        self._versions = {each.api_key: each.max_version for each in answer.api_keys}

    async def _log_in(self, user: str, password: str) -> None:
        hello = SaslHandshakeRequest(mechanism=MECHANISM)
        offered = await self._send(hello, SaslHandshakeResponse, 1, REQUEST_S)
        if offered.error_code:
            raise LostError("the mechanism is refused")
        login = Credentials(MECHANISM, user, password).login()
        message = next(login)
        with suppress(StopIteration):
            while True:
                request = SaslAuthenticateRequest(auth_bytes=message)
                answer = await self._send(request, SaslAuthenticateResponse, 2, REQUEST_S)
                if answer.error_code:
                    raise LostError("the login is refused")
                message = login.send(bytes(answer.auth_bytes))


class Link:
    """A client's connection to whichever gateway works."""

    def __init__(self, job: Job) -> None:
        """Connects on first use, to a gateway by chance."""
        self._job = job
        self._next = job.random.randrange(len(job.gateways))
        self._wire: Wire | None = None
        self._backoff = 0.0
        self._turn = asyncio.Lock()

    @property
    def wire(self) -> Wire | None:
        """The connection, if there is one."""
        return self._wire if self._wire is not None and self._wire.is_open else None

    async def ready(self) -> Wire:
        """A connection; tries gateways, one after the other, until there is one."""
        if (wire := self.wire) is not None:
            return wire
        async with self._turn:
            while (wire := self.wire) is None:
                await self._try_next()
            return wire

    async def call(
        self, request: Request, answer: type[R], *, newest: int = _NEWEST, within: float = REQUEST_S
    ) -> R:
        """Connect if necessary, and make a call. Raises LostError."""
        return await (await self.ready()).call(request, answer, newest=newest, within=within)

    def leave(self) -> None:
        """Disconnect, and use another gateway from now on: this one is of no use at the moment."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    async def back_off(self) -> None:
        """Wait before trying again, longer each time."""
        await asyncio.sleep(self._backoff_s())

    def works(self) -> None:
        """The next wait is short again."""
        self._backoff = 0.0

    def _backoff_s(self) -> float:
        self._backoff = min(max(_BACKOFF_S, 2 * self._backoff), _LONGEST_BACKOFF_S)
        return self._backoff * self._job.random.uniform(0.8, 1.2)

    async def _try_next(self) -> None:
        job = self._job
        gateway = job.gateways[self._next % len(job.gateways)]
        wire = Wire(gateway, job.name)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(lambda: wire, gateway.host, gateway.port)
                await wire.negotiate(job.login)
        except (OSError, LostError):  # a timeout is an OSError
            wire.close()
            self._next += 1
            await self.back_off()
        else:
            self._wire = wire
            self._next += 1  # where to go when this one fails
            self.works()
