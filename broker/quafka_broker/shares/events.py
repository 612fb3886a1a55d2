"""The events of the share groups' journal, and their bytes: records of `__quafka_shares`.

A value has the form of `journals/event_values.py`. Replaying the events in the order of the log
gives the table of share partitions: each record has the state of its last change.

A change is [first offset, end, state, delivery count]: `RecordState` has the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from quafka_broker.journals.event_values import EventValues
from quafka_broker.shares.states import RangeChange, RecordState

Row = tuple[int, int, int, int]
EVERY = -1
"""Stands for all partitions of the topic or, without a topic id, for all of the group."""


class Began(NamedTuple):
    """A share partition has this state, regardless of earlier events.

    `start`: all records below are done. `changes`: the states of the records from there on, except
    new ones.
    """

    org: int
    group: str
    topic_id: bytes
    partition: int
    start: int
    changes: Sequence[Row]


class Changed(NamedTuple):
    """Records of a share partition have changed.

    `start`: that of the window at the time of the event, for a replay without earlier events.
    """

    org: int
    group: str
    topic_id: bytes
    partition: int
    start: int
    changes: Sequence[Row]


class Dropped(NamedTuple):
    """A group no longer has state in a partition, in a topic (EVERY) or at all (no topic id)."""

    org: int
    group: str
    topic_id: bytes
    partition: int


Event: TypeAlias = Began | Changed | Dropped

_VALUES = EventValues[Event](Began, Changed, Dropped)
decode = _VALUES.decode
encode = _VALUES.encode


def rows(changes: Iterable[RangeChange]) -> list[Row]:
    """Changes in the form of an event."""
    return [(first, end, int(state), count) for first, end, state, count in changes]


def changes_of(event: Began | Changed) -> list[RangeChange]:
    """The changes of an event. Raises ValueError: unknown state."""
    return [
        RangeChange(first, end, RecordState(state), n) for first, end, state, n in event.changes
    ]
