"""The states of a group, where each leads, and what its members are told in it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from quafka_proto.errors import ErrorCode


class State(StrEnum):
    """By Kafka's names."""

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
"""Where each state may lead."""


class Told(NamedTuple):
    """What a member of the current generation is told."""

    heartbeat: ErrorCode
    sync: ErrorCode
    commit: ErrorCode


_FINE, _AGAIN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
_NOBODY, _GONE = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE

TOLD: dict[State, Told] = {
    State.EMPTY: Told(heartbeat=_NOBODY, sync=_NOBODY, commit=_NOBODY),
    State.PREPARING: Told(heartbeat=_AGAIN, sync=_AGAIN, commit=_FINE),
    State.COMPLETING: Told(heartbeat=_FINE, sync=_FINE, commit=_AGAIN),
    State.STABLE: Told(heartbeat=_FINE, sync=_FINE, commit=_FINE),
    State.DEAD: Told(heartbeat=_GONE, sync=_GONE, commit=_GONE),
}
