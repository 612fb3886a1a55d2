"""A request from its decoding until its response is handed to the response writer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.edge.request_decoding import SHORT
from quafka_gateway.edge.request_trace import RequestTrace
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.handlers.order import Order
from quafka_gateway.handlers.prediction import AnyPrediction
from quafka_loop.eager_task import DirectFuture
from quafka_proto.headers import RequestHeader
from quafka_proto.message import Buffer, Message


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """One request in flight.

    Attributes:
        order: the state that the request reads and writes.
        message: None once the request is answered and its bytes are released.
        size: bytes of the request's frame.
        trace: None if the request is not sampled.
        task: serves the request or, if it was predicted, what it waits for; None until it has begun
            and has waited or ended.
        response: the encoded response; None before it is made, and if the protocol has none.
        shared: bytes of the response that another owner has counted.
        held: bytes of a long response in the response memory, until it is written.
        begun: whether the handler was started.
        done: whether the handler has ended.
        ordered: whether later requests may have to wait for this one (`RequestOrder`).
        may_be_long: whether the response may be long (`Api.may_be_long`).
        admission: set when a long response may be made; None while nothing waits for that.
        prediction: what the next request of this kind may be.
        waited: seconds that it waited before it had to be decoded after all; they count as parked.
        decoding: seconds that its decoding took, if the time of requests is charged.
    """

    header: RequestHeader
    api: AnyApi
    order: Order
    message: Message | None
    size: int
    trace: RequestTrace | None
    may_be_long: bool
    task: DirectFuture[Any] | None = None
    response: list[Buffer] | None = None
    shared: int = 0
    held: int = 0
    begun: bool = False
    done: bool = False
    ordered: bool = True
    admission: asyncio.Future[None] | None = None
    prediction: AnyPrediction | None = None
    waited: float = 0.0
    decoding: float = 0.0

    def needs_broker(self, error: BrokerUnavailableError) -> str:
        """Why it is not answered: its response has no error code for "try again"."""
        return f"{self.api.name} needs the broker: {error}"

    @property
    def over(self) -> bool:
        """Whether it has no response and never will have: its task has failed."""
        ended = self.task is not None and self.task.done()
        return ended and not self.size and not self.done

    @property
    def checks_length(self) -> bool:
        """Whether the response may be so long that it takes slices of the event loop."""
        return self.may_be_long or self.size > SHORT or self.api.long_poll
