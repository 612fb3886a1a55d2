"""Defects of transactions and of what read_committed consumers see."""

from __future__ import annotations

from quafka_broker.groups.table import Commit
from quafka_broker.ops import transactions as ops
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.outcome import Outcome
from quafka_broker.partitions.partition import Partition
from quafka_broker.state import BrokerState
from quafka_broker.transactions import rules
from quafka_broker.transactions.ending import Ending, Settles
from quafka_broker.transactions.events import Ended
from quafka_broker.transactions.transaction import Transaction
from quafka_broker.wal.commit_group import GroupedBatch
from quafka_mesh_ops.ops.transactions import CommitTxnOffsets
from quafka_proto.errors import ErrorCode
from tests.sim.defects.defect import Defect, change


def _last_stable_offset_ignored() -> None:
    change(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def _aborted_not_listed() -> None:
    change(Partition, "aborted", lambda *_: [])


def _end_in_two_entries() -> None:
    """First the offsets, then the markers."""
    append = Ending._append

    async def twice(
        self: Ending,
        event: Ended,
        offsets: list[GroupedBatch],
        partitions: list[Partition],
        settles: Settles,
    ) -> None:
        if offsets:
            first, *others = offsets

            def settled(outcome: Outcome) -> None:
                for place, settle in settles:
                    settle(None if isinstance(outcome, StorageError) else outcome[place])

            await self._wal.queue.append(
                first.partition, [(first.header, first.batch)], settle=settled, members=others
            )
            event = event._replace(offset_records=0)
        await append(self, event, [], partitions, [])

    change(Ending, "_append", twice)


def _offsets_at_once() -> None:
    store = ops._store

    async def visible(
        state: BrokerState, org: int, op: CommitTxnOffsets, good: Commit
    ) -> ErrorCode:
        error = await store(state, org, op, good)
        if not error:
            await state.groups.offsets.commit(org, op.group, good)
        return error

    change(ops, "_store", visible)


def _old_epochs_not_fenced() -> None:
    check = rules.check_producer

    def any_epoch(
        transaction: Transaction | None, producer_id: int, epoch: int
    ) -> Transaction | ErrorCode:
        known = transaction is not None and transaction.producer_id == producer_id
        return check(
            transaction, producer_id, transaction.epoch if known and transaction else epoch
        )

    change(rules, "check_producer", any_epoch)


_PROGRAMS = ("transactions", "copier")

DEFECTS = {
    "the last stable offset is ignored": Defect(_last_stable_offset_ignored, programs=_PROGRAMS),
    "aborted transactions are not listed": Defect(_aborted_not_listed, programs=_PROGRAMS),
    "a transaction ends in two entries": Defect(
        _end_in_two_entries, programs=("copier",), faults=("kill",)
    ),
    "offsets of a transaction are visible before its end": Defect(
        _offsets_at_once, programs=("copier",)
    ),
    "producers of old epochs are not fenced": Defect(_old_epochs_not_fenced, programs=("copier",)),
}
