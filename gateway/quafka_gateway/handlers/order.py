"""The order in which the requests of one connection run. Pure.

Kafka finishes one request of a connection before it begins the next (it mutes the channel until
the response is sent). Here requests run concurrently where nobody can see the difference: each
API declares which state it reads and which it writes, and a request begins once every earlier
unfinished request of its connection that touches the same state is finished. Reads run beside
reads. Produces run beside produces: the mesh lane of a connection keeps their order up to the
log, and they share group commits. A long poll holds whatever comes behind it, as in Kafka.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntFlag, auto
from typing import Generic, Protocol, TypeVar


class State(IntFlag):
    """What requests read and change, as far as a client can see."""

    NONE = 0
    RECORDS = auto()  # with log starts and watermarks
    TOPICS = auto()  # names, ids, partition counts
    CONFIGS = auto()
    PRODUCERS = auto()  # ids, epochs, sequences
    TRANSACTIONS = auto()
    GROUPS = auto()  # members, generations, sessions
    OFFSETS = auto()  # committed
    FETCH_SESSIONS = auto()
    REPLICAS = auto()  # assignments, log folders, leaders
    ACLS = auto()
    QUOTAS = auto()
    USERS = auto()
    ALL = (
        RECORDS
        | TOPICS
        | CONFIGS
        | PRODUCERS
        | TRANSACTIONS
        | GROUPS
        | OFFSETS
        | FETCH_SESSIONS
        | REPLICAS
        | ACLS
        | QUOTAS
        | USERS
    )


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity, for each request
class Order:
    """What an API touches.

    Attributes:
        reads: its answer depends on this state.
        writes: it changes this state.
        in_lane: two requests with this mark keep their order on the way to the log, so that the
            later one need not wait for the earlier one.
        long_poll: may wait for data or for other clients; later requests wait for its answer.
    """

    reads: State = State.NONE
    writes: State = State.NONE
    in_lane: bool = False
    long_poll: bool = False

    def waits_for(self, earlier: Order) -> bool:
        """Whether a request of this order begins only when an earlier one is finished."""
        if self.in_lane and earlier.in_lane:
            return False
        return earlier.long_poll or _touch(self, earlier)


def _touch(one: Order, other: Order) -> bool:
    """Whether one of them writes what the other reads or writes."""
    # int: the operators of IntFlag build objects, at ten times the price.
    reads, writes = int(one.reads), int(one.writes)
    return bool(int(other.writes) & (reads | writes) or int(other.reads) & writes)


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
