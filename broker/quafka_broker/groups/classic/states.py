"""The states of a group, their successors, and the errors of members in each."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from quafka_proto.errors import ErrorCode


class ClassicState(StrEnum):
    """The states, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: dict[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING, ClassicState.DEAD}),
    ClassicState.PREPARING: frozenset({ClassicState.COMPLETING, ClassicState.EMPTY}),
    ClassicState.COMPLETING: frozenset({ClassicState.STABLE, ClassicState.PREPARING}),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING}),
    ClassicState.DEAD: frozenset({ClassicState.EMPTY}),  # the deletion failed
}
"""The successors of each state."""


class StateErrors(NamedTuple):
    """The error code of each request of a member of the current generation."""

    heartbeat: ErrorCode
    sync: ErrorCode
    commit: ErrorCode


_NONE, _REJOIN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
_UNKNOWN, _UNAVAILABLE = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE

ERRORS: dict[ClassicState, StateErrors] = {
    ClassicState.EMPTY: StateErrors(heartbeat=_UNKNOWN, sync=_UNKNOWN, commit=_UNKNOWN),
    ClassicState.PREPARING: StateErrors(heartbeat=_REJOIN, sync=_REJOIN, commit=_NONE),
    ClassicState.COMPLETING: StateErrors(heartbeat=_NONE, sync=_NONE, commit=_REJOIN),
    ClassicState.STABLE: StateErrors(heartbeat=_NONE, sync=_NONE, commit=_NONE),
    ClassicState.DEAD: StateErrors(heartbeat=_UNAVAILABLE, sync=_UNAVAILABLE, commit=_UNAVAILABLE),
}
