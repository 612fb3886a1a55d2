"""What a connection's next request is expected to be, so that it need not be decoded.

A client at work repeats itself: a producer sends every byte of its last request again but for the
batch, a consumer at the tail but for an epoch. An API that declares `Api.predict` learns from each
request what the next one would look like. If it comes, it is recognised by its bytes, begun by a
plain call, without a task, and answered by a response that is known but for a few numbers. Any
other request is decoded and served by its handler.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from quafka_gateway.fetch.idle_fetch import IdleFetch
from quafka_gateway.security.authorizer import ClientAccess
from quafka_gateway.security.session import ClientSession
from quafka_loop.eager_task import DirectFuture
from quafka_proto.headers import RequestHeader
from quafka_proto.message import Buffer

_KIND = struct.Struct(">hh")
CORRELATION_ENDS = 8
"""The position in a request's frame after API key, version and correlation id."""


class Caller(Protocol):
    """The client of a connection. `session` and `lane`: see RequestContext."""

    session: ClientSession
    lane: int

    def has_quotas(self) -> bool:
        """Whether its requests must be charged, so that only a handler can serve them."""
        ...

    def access(self) -> ClientAccess | None:
        """What the client may do; None: everything."""
        ...


PredictedAnswer = tuple[list[Buffer], int]
"""The encoded response to a predicted request, and the error code in it."""
News = TypeVar("News")
"""What a request has that was not known before."""


class Prediction(ABC, Generic[News]):
    """The next request of one kind, as a client is expected to send it."""

    def __init__(self, header: RequestHeader) -> None:
        """`header`: that of the last request."""
        self._header = header
        self.kind = _KIND.pack(header.api_key, header.api_version)
        """What the frame begins with: API key and version."""

    def header(self, frame: bytes) -> RequestHeader:
        """The header of the predicted request."""
        key, version, _, client_id = self._header
        correlation_id = int.from_bytes(frame[4:CORRELATION_ENDS], "big", signed=True)
        return RequestHeader(key, version, correlation_id, client_id)

    def learn(self, idle: IdleFetch | None) -> None:
        """A handler has served a request of this kind. `idle`: see RequestContext."""

    @abstractmethod
    def read(self, frame: bytes, caller: Caller) -> News | None:
        """The news of a request; None: it is not the predicted one, or needs its handler."""

    def records(self, news: News) -> Buffer | None:
        """The batch in the request, which may say that it is sampled."""
        return None

    @abstractmethod
    def begin(self, news: News, caller: Caller) -> DirectFuture[Any] | None:
        """Begin to serve the request; None: its handler must."""

    @abstractmethod
    def answer(
        self, correlation_id: int, news: News, begun: DirectFuture[Any], caller: Caller
    ) -> PredictedAnswer | None:
        """The answer, once `begun` is done; None: the handler must serve the request after all.

        Raises:
            BrokerUnavailableError: the broker has not answered.
        """


AnyPrediction = Prediction[Any]
"""A prediction of any kind."""
