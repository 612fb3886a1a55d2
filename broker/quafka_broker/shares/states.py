"""The states of a record in a share group, and the effects of acknowledgements (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from math import inf
from typing import NamedTuple

_FEWEST_TOGETHER = 2
"""The minimum number of deliveries of a record together with others."""


class RecordState(IntEnum):
    """The state of a record. The numbers are written to the log; Kafka's are the same."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """Never delivered again, though no consumer has accepted it."""

    @property
    def is_final(self) -> bool:
        """Whether the record leaves the window once it is the first record."""
        return self in _FINAL


_FINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class Acknowledge(IntEnum):
    """Kafka's types of acknowledgements."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Holder(NamedTuple):
    """A member that has records, and the share session in which it acquired or renewed them.

    The session is an id of the member's gateway; empty for gateways that name none.
    """

    member: str
    session: bytes = b""


NOBODY = Holder("")


class RangeChange(NamedTuple):
    """Records [first, end) get this state and this delivery count."""

    first: int
    end: int
    state: RecordState
    deliveries: int


class JustAcquired(NamedTuple):
    """Records [first, end) that a member has just acquired, in their `deliveries`-th delivery."""

    first: int
    end: int
    deliveries: int


def alone_from(most_deliveries: int) -> float:
    """The number of deliveries after which records come alone: half of the limit, as in Kafka.

    One of them may crash its consumers; the others would reach the limit with it.
    """
    found = max(_FEWEST_TOGETHER, (most_deliveries + 1) // 2)
    return found if found < most_deliveries else inf


def alone_at_once(size: int, deliveries: int, most_deliveries: int) -> int:
    """How many of `size` such records are delivered: half as many each time, finally one."""
    if deliveries >= most_deliveries - 1:
        return 1
    return max(1, size >> int(deliveries - alone_from(most_deliveries) + 1))


class OffsetSpan(NamedTuple):
    """Offsets [first, end) of one record batch.

    `size`: its bytes. `hidden`: no consumer may have its records, which are transaction markers or
    belong to an aborted transaction.
    """

    first: int
    end: int
    size: int = 0
    hidden: bool = False


class Acknowledgement(NamedTuple):
    """The records [first, end), with one type for all of them or one for each."""

    first: int
    end: int
    types: Sequence[int]


class BadAcknowledgementError(ValueError):
    """The acknowledgement is invalid, regardless of the states of the records."""


class RecordStateError(Exception):
    """The member does not hold a record: its lock has ended, or it never had one."""


def check_order(batches: Iterable[Acknowledgement]) -> None:
    """Check that the batches ascend, as Kafka does.

    Raises:
        BadAcknowledgementError: batches overlap, or are not in order.
        RecordStateError: a batch repeats the last record of the one before it, which Kafka finds
            acknowledged by then.
    """
    for before, after in pairwise(batches):
        if after.first < before.end - 1:
            raise BadAcknowledgementError("batches overlap, or are not in order")
        if after.first < before.end:
            raise RecordStateError(f"offset {after.first} is acknowledged twice")
