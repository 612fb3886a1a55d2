"""The declaration of one Kafka API: `API = Api(...)` in the module of its handler.

`api.py` collects the declarations. The table is the dispatch, the ApiVersions response, the
version check and the order of requests at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Generic, TypeAlias, TypeVar

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.items import AnyItems
from quafka_gateway.handlers.order import Order
from quafka_gateway.handlers.prediction import AnyPrediction
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_gateway.responses.response_length import names_few
from quafka_gateway.security.authorizer import NeededRight
from quafka_gateway.tenant import Tenant
from quafka_proto.headers import RequestHeader
from quafka_proto.message import Message, Versions

Request = TypeVar("Request", bound=Message)
Handler: TypeAlias = Callable[
    [Request, RequestContext], Awaitable[Message | EncodedResponse | None]
]


class ResponseLength(Enum):
    """Whether a response may describe thousands of items.

    A long response is encoded in slices of the event loop. A connection makes one at a time, all
    connections make few at a time, and none is made for a client that has gone.
    """

    SHORT = auto()
    BY_REQUEST = auto()
    """Long, unless the request names few items."""
    LONG = auto()


@dataclass(frozen=True, slots=True)
class Api(Generic[Request]):
    """One Kafka API as this gateway serves it.

    Attributes:
        key: Kafka's number of the API.
        versions: the versions accepted and advertised.
        request: the request's schema.
        handle: returns the response, or None if the protocol has none (Produce with acks=0).
        order: the state that the API reads and writes, which decides what a request waits for on
            its connection. It has no default, so that every new API declares it.
        access: the rights that requests may need, for which the handler asks
            (`handlers/authorized.py`). It has no default either; empty: anyone may use the API.
        response_length: how long its responses may be.
        unknown_version: makes the request that stands for one of an unknown version, and is
            answered as version 0. None: an unknown version closes the connection.
        held: a request may be held for a moment, and be sent to the broker with others.
        for_operators: asks for an operator (`RequestContext.is_operator`) instead of a right.
        audited: an administrative act, which the audit log records.
        is_unready: whether the handler of a request in a lane must wait before it sends its op, to
            find out about the client's rights. Such a request is alone in its lane.
        items: the items that the engine answers about (`handlers/items.py`).
        predict: returns what the next request may be, from the header, the message, the frame and
            where the body ends there; None: it will be decoded (`handlers/prediction.py`).
        quafka_only: not an API of Kafka; advertised to Quafka's own tools alone.
        name: Kafka's name of the API, from the schema.
        long_poll: whether a request may wait for data or for other clients, and its response may
            be large. A long poll begins when every earlier request of the connection is answered
            and the client has read the responses. It is dropped when the client goes.
        may_park: whether a request may wait for others: that time is not its latency.
    """

    key: int
    versions: Versions
    request: type[Request]
    handle: Handler[Request]
    order: Order
    access: tuple[NeededRight, ...]
    response_length: ResponseLength = ResponseLength.SHORT
    unknown_version: Callable[[], Request] | None = None
    held: bool = False
    quafka_only: bool = False
    for_operators: bool = False
    audited: bool = False
    is_unready: Callable[[Request, Tenant], bool] | None = None
    predict: Callable[[RequestHeader, Request, bytes, int], AnyPrediction | None] | None = None
    items: AnyItems | None = None
    name: str = field(init=False)
    long_poll: bool = field(init=False)
    may_park: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.request.__name__.removesuffix("Request"))
        object.__setattr__(self, "long_poll", self.order.long_poll)
        object.__setattr__(self, "may_park", self.held or self.order.long_poll)

    def may_be_long(self, request: Request) -> bool:
        """Whether the response to this request may be long."""
        length = self.response_length
        if length is ResponseLength.SHORT:
            return False
        return length is ResponseLength.LONG or not names_few(request)


AnyApi: TypeAlias = Api[Any]
"""An API whatever its request, as a table of APIs holds it."""
