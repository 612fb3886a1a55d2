"""The order in which the requests of one connection run. Pure.

Kafka finishes one request of a connection before it begins the next (it mutes the channel until
the response is sent). Here requests run concurrently where nobody can see the difference: each
API declares which state it reads and which it writes, and a request begins once every earlier
unfinished request of its connection that touches the same state is finished. Reads run beside
reads. Produces run beside produces: the mesh lane of a connection keeps their order up to the
log, and they share group commits. A long poll holds whatever comes behind it, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag, auto


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
