"""The server's assignors, which compute a target from members with subscriptions. Pure.

An assignor is a generator that yields after short steps, so that a caller may run it in slices of
the event loop, or in a thread: it reads nothing but its arguments. Groups of consumers use
`uniform` and `range`, share groups `simple`.
"""

from __future__ import annotations

from quafka_broker.groups.consumer.assignors import range as range_
from quafka_broker.groups.consumer.assignors import simple, uniform
from quafka_broker.groups.consumer.assignors.spec import Assignor

UNIFORM, RANGE, SIMPLE = "uniform", "range", "simple"

ASSIGNORS: dict[str, Assignor] = {
    UNIFORM: uniform.assign,
    RANGE: range_.assign,
    SIMPLE: simple.assign,
}
"""All assignors by Kafka's names."""
