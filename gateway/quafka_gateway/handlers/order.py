"""The declaration of what a request reads and writes, which decides its order. Pure.

Kafka finishes one request of a connection before it begins the next (it mutes the channel until
the response is sent). Here requests run concurrently where no client can see the difference: each
API declares the state that it reads and writes, and a request begins when every earlier unfinished
request of its connection that touches the same state is finished. Reads run concurrently with
reads. Produces run concurrently with produces: the mesh lane of a connection keeps their order up
to the log, and they share group commits. All later requests wait for a long poll, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag, auto


class SeenState(IntFlag):
    """State that requests read and write, as far as a client can see."""

    NONE = 0
    RECORDS = auto()  # with log starts and watermarks
    TOPICS = auto()  # names, ids, partition counts
    CONFIGS = auto()
    PRODUCERS = auto()  # ids, epochs, sequences
    TRANSACTIONS = auto()
    GROUPS = auto()  # members, generations, sessions
    OFFSETS = auto()  # committed
    SHARES = auto()  # the records that share groups have in flight, and their sessions
    FETCH_SESSIONS = auto()
    REPLICAS = auto()  # assignments, log folders, leaders
    ACLS = auto()
    QUOTAS = auto()
    USERS = auto()
    ORGS = auto()
    ALL = (
        RECORDS
        | TOPICS
        | CONFIGS
        | PRODUCERS
        | TRANSACTIONS
        | GROUPS
        | OFFSETS
        | SHARES
        | FETCH_SESSIONS
        | REPLICAS
        | ACLS
        | QUOTAS
        | USERS
        | ORGS
    )


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity, for each request
class Order:
    """What an API reads and writes.

    Attributes:
        reads: the state that the response depends on.
        writes: the state that the request changes.
        in_lane: the mesh lane keeps the order of two such requests up to the log, so that the
            later one need not wait for the earlier one.
        long_poll: the request may wait for data or for other clients; later requests wait for it.
    """

    reads: SeenState = SeenState.NONE
    writes: SeenState = SeenState.NONE
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
