"""The states of a transactional id, and their successors."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The states, by Kafka's names. The `PREPARE` states last while one append is on its way."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


NEXT: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.ONGOING, State.PREPARE_ABORT}),
    State.ONGOING: frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
}
"""The successors of each state. If its append fails, a `PREPARE` state goes back."""
