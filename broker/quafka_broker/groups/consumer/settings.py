"""The settings of a consumer group; an operator may change them at any time."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_broker.groups.consumer.assignors import RANGE, UNIFORM


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """Settings of one group. Times are in seconds unless they end in `_ms`.

    Attributes:
        session_timeout, heartbeat_interval_ms: the members' session timeout and heartbeat interval.
        max_size: the maximum number of members.
        assignors: the assignors that members may prefer; the first is the group's own.
        assignment_interval: the minimum time between two targets of a group that is not small.
        small: a group with at most this many members and partitions gets its target within the step
            that needs it, which takes less than a millisecond.
        max_topics: the maximum number of topics that a member may be subscribed to by name.
    """

    session_timeout: float = 45.0
    heartbeat_interval_ms: int = 5_000
    max_size: int = 10_000
    assignors: tuple[str, ...] = (UNIFORM, RANGE)
    assignment_interval: float = 1.0
    small: int = 300
    max_topics: int = 10_000


DEFAULTS = ConsumerGroupSettings()
"""Kafka's assignors."""
