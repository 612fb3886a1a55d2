"""The rules for producers' requests, by the state of the transactional id. Pure.

A request is checked by the producer's id and epoch first, then by the state (KAFKA-19690): a fenced
producer must learn that it is fenced. Each function returns an error code, or a plan.

| EndTxn in state | commit | abort | abort with epoch bumps |
| --- | --- | --- | --- |
| Ongoing | commits | aborts | aborts |
| Empty | refused | refused | aborts an empty transaction |
| CompleteCommit, same epoch | answered again; with epoch bumps refused | refused | as above |
| CompleteAbort, same epoch | refused | answered again | as above |
| ended by this producer's last epoch, with epoch bumps | answered again, if it was a commit | |
answered again, if it was an abort |

A transaction begins with the first partition or group that is added to it. A commit is refused if
nothing has been: all writes of the transaction have been refused, or it had none. Clients do not
send the end of a transaction without writes; with epoch bumps (KIP-890) they abort if they do not
know whether a write has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from quafka_broker.transactions.states import TransactionalIdState
from quafka_broker.transactions.transaction import LAST_EPOCH, NO_EPOCH, NO_ID, Transaction
from quafka_proto.errors import ErrorCode

OLD_EPOCH = "another session of the transactional id has begun, or its transaction timed out"
"""The error of a producer with an earlier epoch."""

_COMPLETE = {True: TransactionalIdState.COMPLETE_COMMIT, False: TransactionalIdState.COMPLETE_ABORT}


@dataclass(frozen=True, slots=True)
class Successor:
    """The producer id and epoch after a change; `new_id`: a new producer id, with epoch 0."""

    epoch: int
    new_id: bool = False


class InitPlan(NamedTuple):
    """How a session begins. `successor` None: unchanged, because the request is a repeated one.

    `last_epoch`, `previous_id`: see `Transaction`.
    """

    successor: Successor | None
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_ID


class EndPlan(NamedTuple):
    """How a transaction ends. `again`: it has ended; the request is a repeated one.

    `marker_epoch`: the epoch of its markers.
    """

    again: bool
    marker_epoch: int = NO_EPOCH
    successor: Successor = Successor(NO_EPOCH)
    last_epoch: int = NO_EPOCH


AGAIN = EndPlan(again=True)


def next_epoch(epoch: int) -> Successor:
    """The successor of an epoch: the next one, or a new producer id."""
    return Successor(0, new_id=True) if epoch >= LAST_EPOCH else Successor(epoch + 1)


def init(transaction: Transaction | None, producer_id: int, epoch: int) -> InitPlan | ErrorCode:
    """Begin a session, for a new producer (-1, -1) or a recovering one (KIP-360)."""
    if transaction is None or transaction.epoch == NO_EPOCH:
        return InitPlan(Successor(0, new_id=True))
    if producer_id == NO_ID:
        return InitPlan(next_epoch(transaction.epoch), previous_id=NO_ID)
    if producer_id == transaction.producer_id:
        if epoch == transaction.epoch:
            recovered = next_epoch(epoch)
            previous = producer_id if recovered.new_id else NO_ID
            return InitPlan(recovered, epoch, previous)
        if (
            epoch == transaction.last_epoch
            and transaction.state is not TransactionalIdState.ONGOING
        ):
            return InitPlan(None)
    repeats = (producer_id, epoch) == (transaction.previous_id, transaction.last_epoch)
    if repeats and transaction.state is not TransactionalIdState.ONGOING:
        return InitPlan(None)
    return ErrorCode.PRODUCER_FENCED


def check_producer(
    transaction: Transaction | None, producer_id: int, epoch: int
) -> Transaction | ErrorCode:
    """The transaction of a request's producer, or why the producer is refused."""
    if transaction is None or transaction.producer_id != producer_id:
        if transaction is not None and transaction.previous_id == producer_id != NO_ID:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    return transaction


def end(
    transaction: Transaction | None, producer_id: int, epoch: int, commit: bool, bumps: bool
) -> EndPlan | ErrorCode:
    """End a producer's transaction. `bumps`: the producer takes its next epoch from the answer."""
    if transaction is not None and bumps and _has_ended(transaction, producer_id, epoch):
        if transaction.state is _COMPLETE[commit]:
            # A commit of a transaction that a timeout has aborted gets here, too, but the state
            # differs.
            return AGAIN
        return ErrorCode.PRODUCER_FENCED if not transaction.by_client else _INVALID
    found = check_producer(transaction, producer_id, epoch)
    if isinstance(found, ErrorCode):
        return found
    if bumps:
        if commit and found.state is not TransactionalIdState.ONGOING:
            return _INVALID
        return EndPlan(False, epoch + 1, next_epoch(epoch), epoch)
    if found.state is _COMPLETE[commit]:
        return AGAIN
    if found.state is not TransactionalIdState.ONGOING:
        return _INVALID
    return EndPlan(False, epoch, Successor(epoch), found.last_epoch)


_INVALID = ErrorCode.INVALID_TXN_STATE


def _has_ended(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether the producer's last transaction, and its epoch, have ended."""
    known = producer_id in (transaction.producer_id, transaction.previous_id)
    return known and epoch == transaction.last_epoch and transaction.state in _COMPLETE.values()


def abort(transaction: Transaction) -> EndPlan:
    """Abort a producer's transaction; the producer is fenced, but may recover (KIP-588)."""
    epoch = transaction.epoch
    return EndPlan(False, epoch + 1, next_epoch(epoch), epoch)
