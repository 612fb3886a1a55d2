"""The events of the transactions' journal, and their bytes: records of `__quafka_transactions`.

A record's value is the version byte 0x01 and a msgpack array of the event's kind and its fields, in
the order below. Readers ignore trailing fields that they do not know; fields are only ever
appended. `apply` in `table.py` defines the events' meaning.

A partition is [topic hash, partition, generation, topic name]. The rows of offsets are those of the
groups' journal (`groups/table.py`). Brokers are named by their node ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from quafka_broker.groups.table import Commit
from quafka_broker.journals.event_values import EventValues

AddedPartition = tuple[bytes, int, int, str]
"""Topic hash, partition, generation, and the topic's name."""


class Initialized(NamedTuple):
    """A producer's session began: earlier epochs are fenced, and no transaction is open.

    `last_epoch`, `previous_id`: those that a repeated request may still have; -1: none.
    """

    org: int
    name: str
    producer_id: int
    epoch: int
    timeout_ms: int
    last_epoch: int
    previous_id: int
    at_ms: int


class Added(NamedTuple):
    """Partitions or groups joined a transaction, which began with the first of them."""

    org: int
    name: str
    partitions: Sequence[AddedPartition]
    groups: Sequence[str]
    at_ms: int


class OffsetsStored(NamedTuple):
    """A group's offsets that the transaction's commit makes visible."""

    org: int
    name: str
    group: str
    rows: Sequence[Sequence[Any]]


class Ended(NamedTuple):
    """A transaction ended, in the same group of entries as its markers and its offsets.

    Attributes:
        producer_id, epoch: those of the markers.
        next_id, next_epoch: those of the next transaction.
        last_epoch, previous_id: as in `Initialized`.
        partitions: topic hash, partition, generation and first offset of each partition with
            records of the transaction; their markers follow in this order, after `offset_records`
            records of the groups' journal.
        by_client: whether the producer requested it, rather than a timeout, another session or an
            administrator.
        number: that of a transaction that has, or is, a branch (ADR 47); 0: none.
        branches: the brokers that must also end their parts.

    Without a name it ends a branch of this broker, or records of no known transaction.
    """

    org: int
    name: str
    producer_id: int
    epoch: int
    commit: bool
    next_id: int
    next_epoch: int
    last_epoch: int
    previous_id: int
    partitions: Sequence[tuple[bytes, int, int, int]]
    offset_records: int
    by_client: bool
    at_ms: int
    number: int = 0
    branches: Sequence[str] = ()


class Forgotten(NamedTuple):
    """A transactional id has expired."""

    org: int
    name: str


class GroupDropped(NamedTuple):
    """A group was deleted, with its offsets in open transactions."""

    org: int
    group: str


class Moved(NamedTuple):
    """A producer has used these connections for requests of one kind (`connections.py`)."""

    org: int
    name: str
    kind: int
    connections: Sequence[bytes]


class Spread(NamedTuple):
    """Partitions of another broker joined a transaction, which may have begun with them.

    `partitions`: topic names and partitions; that broker knows their ids. With the number OF_GROUP,
    the name is that of a group whose offsets that broker has.
    """

    org: int
    name: str
    number: int
    broker: str
    partitions: Sequence[tuple[str, int]]
    at_ms: int


class Finished(NamedTuple):
    """All brokers have ended their parts of a transaction."""

    org: int
    name: str
    number: int


class BranchJoined(NamedTuple):
    """Partitions of this broker joined the transaction of another one, `home`."""

    org: int
    name: str
    home: str
    producer_id: int
    epoch: int
    number: int
    partitions: Sequence[AddedPartition]
    at_ms: int


class BranchOffsets(NamedTuple):
    """Offsets of a group of this broker joined the transaction of another one, `home`."""

    org: int
    name: str
    home: str
    producer_id: int
    epoch: int
    number: int
    group: str
    rows: Sequence[Sequence[Any]]
    at_ms: int


Event: TypeAlias = (
    Initialized
    | Added
    | OffsetsStored
    | Ended
    | Forgotten
    | GroupDropped
    | Moved
    | Spread
    | Finished
    | BranchJoined
    | BranchOffsets
)

_VALUES: EventValues[Event] = EventValues(
    Initialized, Added, OffsetsStored, Ended, Forgotten, GroupDropped, Moved, Spread, Finished,
    BranchJoined, BranchOffsets,
)  # fmt: skip


_ROWS_PER_EVENT = 1_000
_OFFSETS_PER_EVENT = 2_500
"""They are applied in one turn of the loop, in 5 to 10 ms."""
_ROW_BYTES = 40
_BYTES_PER_EVENT = 256 << 10


def added(
    key: tuple[int, str], partitions: Sequence[AddedPartition], groups: Sequence[str], at_ms: int
) -> list[Added]:
    """Events of bounded size that add partitions and groups."""
    few, more = partitions[:_ROWS_PER_EVENT], partitions[_ROWS_PER_EVENT:]
    return [Added(*key, few, groups, at_ms)] + [
        Added(*key, more[at : at + _ROWS_PER_EVENT], (), at_ms)
        for at in range(0, len(more), _ROWS_PER_EVENT)
    ]


def spread(
    key: tuple[int, str], number: int, places: Mapping[tuple[str, int], str], at_ms: int
) -> list[Spread]:
    """Events of bounded size that add partitions of other brokers, which are in `places`."""
    by_broker: dict[str, list[tuple[str, int]]] = {}
    for place, broker in places.items():
        by_broker.setdefault(broker, []).append(place)
    return [
        Spread(*key, number, broker, its[at : at + _ROWS_PER_EVENT], at_ms)
        for broker, its in by_broker.items()
        for at in range(0, len(its), _ROWS_PER_EVENT)
    ]


def offsets_stored(key: tuple[int, str], group: str, commit: Commit) -> Iterator[OffsetsStored]:
    """Events of bounded size that store a group's offsets."""
    for rows in offset_rows(commit):
        yield OffsetsStored(*key, group, rows)


def offset_rows(commit: Commit) -> Iterator[Sequence[Sequence[Any]]]:
    """The rows of a commit, of bounded size for one event each."""
    rows: list[Sequence[Any]] = []
    size = 0
    for row in commit.rows():
        rows.append(row)
        size += _ROW_BYTES + len(row[0]) + len(row[5])
        if size >= _BYTES_PER_EVENT or len(rows) == _OFFSETS_PER_EVENT:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def encode(event: Event) -> bytes:
    """The value of an event's record."""
    short = isinstance(event, Ended) and not event.number
    return _VALUES.encode(event, without_last=2 if short else 0)


def decode(value: bytes) -> Event:
    """Read an event.

    Raises:
        ValueError, TypeError, IndexError: `encode` did not write this value.
    """
    return _VALUES.decode(value)
