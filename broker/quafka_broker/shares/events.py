"""The events of the share groups' journal, and their bytes: records of `__quafka_shares`.

A value has the form of `journals/event_values.py`. Replaying the events in the order of the log
gives the table of share partitions: each record has the state of its last change.

A change is [first offset, end, state, delivery count]: `RecordState` has the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from quafka_broker.journals.event_values import EventValues
from quafka_broker.shares.states import Change, RecordState

Row = tuple[int, int, int, int]
EVERY = -1
"""In place of a partition: all of the topic, or all of the group if there is no topic id."""


class Began(NamedTuple):
    """A share partition has this state, whatever it had before.

    `start`: all records below were dealt with. `changes`: of the records from there on, those that
    are not as new.
    """

    org: int
    group: str
    topic_id: bytes
    partition: int
    start: int
    changes: Sequence[Row]


class Changed(NamedTuple):
    """Records of a share partition have changed.

    `start`: the window's when the event was made, for a replay that lacks the earlier events.
    """

    org: int
    group: str
    topic_id: bytes
    partition: int
    start: int
    changes: Sequence[Row]


class Dropped(NamedTuple):
    """A group has no state any more: in a partition, a topic (EVERY) or at all (no topic id)."""

    org: int
    group: str
    topic_id: bytes
    partition: int


Event: TypeAlias = Began | Changed | Dropped

_VALUES = EventValues[Event](Began, Changed, Dropped)
decode = _VALUES.decode
encode = _VALUES.encode


def rows(changes: Iterable[Change]) -> list[Row]:
    """Changes as an event has them."""
    return [(first, end, int(state), count) for first, end, state, count in changes]


def changes_of(event: Began | Changed) -> list[Change]:
    """The changes of an event. Raises ValueError: a state is not known."""
    return [Change(first, end, RecordState(state), n) for first, end, state, n in event.changes]
