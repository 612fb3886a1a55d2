"""When the requests of one connection begin. Pure."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from quafka_gateway.handlers.order import Order


class Queued(Protocol):
    """A request of a connection, as its queue sees it."""

    begun: bool
    forgotten: bool

    @property
    def order(self) -> Order:
        """What its API touches."""
        ...


Q = TypeVar("Q", bound=Queued)


class Turns(Generic[Q]):
    """Decides when the requests of one connection begin.

    Long polls are only waited for here. The connection begins them itself, when every earlier
    request is answered and its client reads.
    """

    def __init__(self, line: deque[Q]) -> None:
        """`line`: the connection's requests in order; finished ones may still be in it."""
        self._line = line
        self._unfinished: dict[Order, int] = {}
        self._held = 0

    def add(self, request: Q) -> bool:
        """Note the latest request; returns whether it may begin now."""
        order = request.order
        free = not any(order.waits_for(earlier) for earlier in self._unfinished)
        self._unfinished[order] = self._unfinished.get(order, 0) + 1
        if order.long_poll:
            return False
        self._held += not free
        return free

    def forget(self, request: Q) -> None:
        """The request is finished, or was taken out of the line. May be called twice."""
        if request.forgotten:
            return
        request.forgotten = True
        order = request.order
        left = self._unfinished[order] - 1
        if left:
            self._unfinished[order] = left
        else:
            del self._unfinished[order]
        if not request.begun and not order.long_poll:
            self._held -= 1

    def ready(self) -> list[Q]:
        """Those that waited and may begin now, in their order."""
        if not self._held:
            return []
        earlier: list[Order] = []
        ready: list[Q] = []
        for queued in self._line:
            order = queued.order
            if queued.forgotten:
                continue
            if order.long_poll:
                break
            if not queued.begun and not any(order.waits_for(each) for each in earlier):
                ready.append(queued)
            if order not in earlier:
                earlier.append(order)
        self._held -= len(ready)
        return ready
