"""The states of a group, their successors, and the errors of members in each."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from quafka_proto.errors import ErrorCode


class State(StrEnum):
    """The states, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING}),
    State.STABLE: frozenset({State.PREPARING}),
    State.DEAD: frozenset({State.EMPTY}),  # the deletion failed
}
"""The successors of each state."""


class StateErrors(NamedTuple):
    """The error code of each request of a member of the current generation."""

    heartbeat: ErrorCode
    sync: ErrorCode
    commit: ErrorCode


_NONE, _REJOIN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
_UNKNOWN, _UNAVAILABLE = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE

ERRORS: dict[State, StateErrors] = {
    State.EMPTY: StateErrors(heartbeat=_UNKNOWN, sync=_UNKNOWN, commit=_UNKNOWN),
    State.PREPARING: StateErrors(heartbeat=_REJOIN, sync=_REJOIN, commit=_NONE),
    State.COMPLETING: StateErrors(heartbeat=_NONE, sync=_NONE, commit=_REJOIN),
    State.STABLE: StateErrors(heartbeat=_NONE, sync=_NONE, commit=_NONE),
    State.DEAD: StateErrors(heartbeat=_UNAVAILABLE, sync=_UNAVAILABLE, commit=_UNAVAILABLE),
}
