"""Long responses of one connection: made one at a time, and counted until they are written."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from quafka_gateway.context import Services
from quafka_gateway.edge.in_flight import InFlightRequest
from quafka_gateway.edge.response_writer import ResponseWriter


class LongResponses:
    """Admits the requests of one connection whose responses may be long.

    A request is admitted when it is the first of its kind in flight, and when the client has read
    the responses written before. Admission depends on earlier requests alone, so that no request
    waits for a later one.
    """

    def __init__(
        self,
        services: Services,
        writer: ResponseWriter,
        in_flight: deque[InFlightRequest],
        client_reads: Callable[[], bool],
    ) -> None:
        """`writer`: has the memory where responses are counted."""
        self._limiter = services.long_responses
        self._writer = writer
        self._in_flight = in_flight
        self._client_reads = client_reads
        self.waiting = 0
        """Requests that wait for admission."""

    @asynccontextmanager
    async def admitted(self, request: InFlightRequest) -> AsyncGenerator[None]:
        """Wait for admission on the connection, then among all connections."""
        while self._next() is not request:
            request.admission = asyncio.get_running_loop().create_future()
            self.waiting += 1
            try:
                await request.admission
            finally:
                self.waiting -= 1
        async with self._limiter.admitted():
            yield

    def admit_next(self) -> None:
        """Admit the next request that waits, if the client has read its responses."""
        following = self._next()
        if following is None or following.admission is None or following.admission.done():
            return
        following.admission.set_result(None)

    def hold(self, request: InFlightRequest) -> None:
        """Count an encoded response until `release`, unless its request was dropped."""
        if request.response is not None and request.ordered:
            request.held = sum(map(len, request.response)) - request.shared
            self._writer.memory.hold(request.held)

    def release(self, request: InFlightRequest) -> None:
        """Uncount the response: it is handed to the writer, or dropped."""
        if request.held:
            self._writer.memory.release(request.held)
            request.held = 0

    def close(self) -> None:
        """The client is gone, and no request waits."""
        self._client_reads = _reads_nothing

    def _next(self) -> InFlightRequest | None:
        if not self._client_reads():
            return None
        return next((request for request in self._in_flight if request.may_be_long), None)


def _reads_nothing() -> bool:
    return False
