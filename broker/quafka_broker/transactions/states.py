"""The states of a transactional id, and their successors."""

from __future__ import annotations

from enum import StrEnum


class TransactionalIdState(StrEnum):
    """The states, by Kafka's names. The `PREPARE` states last while one append is on its way."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


NEXT: dict[TransactionalIdState, frozenset[TransactionalIdState]] = {
    TransactionalIdState.EMPTY: frozenset(
        {TransactionalIdState.ONGOING, TransactionalIdState.PREPARE_ABORT}
    ),
    TransactionalIdState.ONGOING: frozenset(
        {TransactionalIdState.PREPARE_COMMIT, TransactionalIdState.PREPARE_ABORT}
    ),
    TransactionalIdState.PREPARE_COMMIT: frozenset({TransactionalIdState.COMPLETE_COMMIT}),
    TransactionalIdState.PREPARE_ABORT: frozenset({TransactionalIdState.COMPLETE_ABORT}),
    TransactionalIdState.COMPLETE_COMMIT: frozenset(
        {
            TransactionalIdState.EMPTY,
            TransactionalIdState.ONGOING,
            TransactionalIdState.PREPARE_ABORT,
        }
    ),
    TransactionalIdState.COMPLETE_ABORT: frozenset(
        {
            TransactionalIdState.EMPTY,
            TransactionalIdState.ONGOING,
            TransactionalIdState.PREPARE_ABORT,
        }
    ),
}
"""The successors of each state. If its append fails, a `PREPARE` state goes back."""
