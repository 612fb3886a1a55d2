"""When the requests of one connection begin. Pure.

Each API declares the state that it reads and writes (`handlers/order.py`). A request begins when
every earlier unfinished request that touches the same state is finished.
"""

from __future__ import annotations

from collections import deque

from quafka_gateway.edge.in_flight import InFlightRequest
from quafka_gateway.handlers.order import Order


class RequestOrder:
    """Decides when the requests of one connection begin.

    Later requests wait here for a long poll, but the connection itself begins the long poll: when
    every earlier request is answered and the client has read the responses.
    """

    def __init__(self, in_flight: deque[InFlightRequest]) -> None:
        """`in_flight`: the requests in their order; finished ones may still be among them."""
        self._in_flight = in_flight
        self._unfinished: dict[Order, int] = {}
        self._waiting = 0
        self.changed = False
        """Whether `next_ready` may return a request."""
        self._looks = False  # the next call of `next_ready` looks for requests
        self._ready: deque[InFlightRequest] = deque()

    def add(self, request: InFlightRequest) -> bool:
        """Add the latest request; return whether it may begin now."""
        order = request.order
        free = True
        for earlier in self._unfinished:
            if order.waits_for(earlier):
                free = False
                break
        self._unfinished[order] = self._unfinished.get(order, 0) + 1
        if order.long_poll:
            return False
        self._waiting += not free
        return free

    def remove(self, request: InFlightRequest) -> None:
        """Let no request wait for this one. A second call has no effect."""
        if not request.ordered:
            return
        request.ordered = False
        order = request.order
        left = self._unfinished[order] - 1
        if left:
            self._unfinished[order] = left
        else:
            del self._unfinished[order]
        if not request.begun and not order.long_poll:
            self._waiting -= 1
        if self._waiting:
            self.changed = self._looks = True

    def next_ready(self) -> InFlightRequest | None:
        """Return the first request that waited and may begin now; the caller must begin it."""
        if self._looks:
            self._looks = False
            self._ready = self._all_ready()
        while self._ready:
            request = self._ready.popleft()
            if request.ordered:  # not dropped
                self._waiting -= 1
                return request
        self.changed = False
        return None

    def _all_ready(self) -> deque[InFlightRequest]:
        earlier: list[Order] = []
        ready: deque[InFlightRequest] = deque()
        for request in self._in_flight:
            order = request.order
            if not request.ordered:
                continue
            if order.long_poll:
                break
            if not request.begun and not any(order.waits_for(each) for each in earlier):
                ready.append(request)
            if order not in earlier:
                earlier.append(order)
        return ready
