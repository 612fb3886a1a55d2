"""The branches at this broker of transactions that other brokers coordinate (ADR 47).

A batch joins a branch after home has confirmed that its transaction is open and has the partition
(like KIP-890's verification). The event that records this is in the log before the batch, in the
same write. So every open transaction in a partition is known to its home, and this broker knows the
home.

Home ends a branch: the end is one group of entries, like that of a transaction. If an end overtakes
home's answer to an earlier request, the answer is void.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from quafka_broker.groups.group import Place
from quafka_broker.groups.table import Commit
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.outcome import Outcome, Settle
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.sources.source import ProduceFacts, RecordsRefusedError
from quafka_broker.transactions.branch import Branch
from quafka_broker.transactions.connections import ConnectedRequestKind, Connections
from quafka_broker.transactions.ending import Ending
from quafka_broker.transactions.journal import TransactionJournal
from quafka_broker.transactions.limits import TransactionLimits
from quafka_broker.transactions.peers import PeerError, Peers
from quafka_broker.transactions.rules import OLD_EPOCH
from quafka_broker.transactions.table import TransactionTable
from quafka_mesh_ops.ops import branches as ops
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.branches import BranchEnd, JoinTransaction, ResolveTransactions
from quafka_mesh_ops.ops.transactions import TransactionalProducer
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_proto.errors import ErrorCode
from quafka_proto.records import TRANSACTIONAL, BatchHeader

log = logging.getLogger("quafka.broker.transactions")

ASK_AFTER_MS = 30_000
"""The age at which home is asked for the outcome of a branch, which it normally ends itself."""
_PER_OP = 500
_CONNECTIONS = 10_000
"""Producers whose connections of a kind are remembered."""

Joining = Sequence[tuple[BatchHeader, PartitionId, str]]
"""Batches: the header, the partition and the topic of each."""

_ANSWERS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""Home's errors as answers to a produce. As in Kafka, clients retry NOT_ENOUGH_REPLICAS."""


@dataclass(slots=True, eq=False)
class _Question:
    """A request to home about a producer. `ended`: the last transaction that ended meanwhile."""

    ended: int = 0


class Branches:
    """Admits batches to branches, and ends them. For one event loop."""

    def __init__(
        self,
        table: TransactionTable,
        journal: TransactionJournal,
        ending: Ending,
        limits: TransactionLimits,
        now_ms: Callable[[], int],
        peers: Peers,
    ) -> None:
        self._table = table
        self._journal = journal
        self._ending = ending
        self._limits = limits
        self._now_ms = now_ms
        self._limited = LimitedLog(log, 60.0)
        self.peers = peers
        self._questions: dict[int, list[_Question]] = {}
        self._connections: OrderedDict[tuple[int, ConnectedRequestKind], Connections] = (
            OrderedDict()
        )
        self._ends: dict[Branch, asyncio.Task[None]] = {}
        self._asked_all = False

    def is_elsewhere(self, request: ProduceFacts) -> bool:
        """Whether another broker coordinates the transaction of a request."""
        return self.is_other(request.home)

    def is_other(self, home: str) -> bool:
        """Whether a request names another broker as the coordinator of its transaction."""
        return bool(home) and home != self.peers.node_id

    # --- joining ----------------------------------------------------------------------------

    def are_joined(self, batches: Joining) -> bool:
        """Whether all transactional batches may be given to `admit` without `join`."""
        return not any(self._missing(batches))

    def _missing(self, batches: Joining) -> Iterable[tuple[BatchHeader, PartitionId, str]]:
        for header, id_, topic in batches:
            if header.attributes & TRANSACTIONAL:
                found = self._table.branches.get(header.producer_id)
                known = found is not None and found.epoch == header.producer_epoch
                if found is None or not known or not found.has(id_):
                    yield header, id_, topic

    async def join(self, request: ProduceFacts, batches: Joining) -> RecordsRefusedError | None:
        """Let home confirm new partitions; returns the refusal of their batches."""
        missing = list(self._missing(batches))
        if not missing:
            return None
        sessions = {(header.producer_id, header.producer_epoch) for header, _, _ in missing}
        if len(sessions) > 1:
            return RecordsRefusedError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the batches are of several producers"
            )
        if request.home not in self.peers.others:
            return RecordsRefusedError(
                ErrorCode.POLICY_VIOLATION,
                "mesh.brokers does not have the broker that coordinates the transaction",
            )
        new = {id_: topic for _, id_, topic in missing}
        try:
            return await self._ask(request, *sessions.pop(), new)
        except PeerError as e:
            self._limited.warning(request.home, "a transaction cannot be verified: %s", e)
            return RecordsRefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"the coordinator of the transaction: {e}"
            )

    async def _ask(
        self, request: ProduceFacts, producer_id: int, epoch: int, new: Mapping[PartitionId, str]
    ) -> RecordsRefusedError | None:
        """Send a request to home, and join. Raises PeerError."""
        topics: dict[str, list[int]] = {}
        for id_, topic in new.items():
            topics.setdefault(topic, []).append(id_.partition)
        op = JoinTransaction(
            TransactionalProducer(request.transactional_id, producer_id, epoch, request.connection),
            [PartitionsByTopic(*each) for each in topics.items()],
            request.implicit,
        )
        number = await self._number_at_home(request.org, request.home, op)
        if number is ErrorCode.TRANSACTION_ABORTABLE:
            return RecordsRefusedError(
                number, "the transaction is not open, or lacks the partition"
            )
        if isinstance(number, ErrorCode):
            return RecordsRefusedError(_ANSWERS.get(number, number), "refused by the coordinator")
        branch = self._open(request.org, request.home, op.producer, number)
        if branch is None:
            return RecordsRefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "an earlier transaction is open"
            )
        self._join(branch, {id_: topic for id_, topic in new.items() if not branch.has(id_)})
        return None

    async def _number_at_home(self, org: int, home: str, op: JoinTransaction) -> int | ErrorCode:
        """Let home confirm that a part here is in a transaction; returns its number, or the error.

        Raises:
            PeerError: home does not answer.
        """
        producer_id = op.producer.producer_id
        question = _Question()
        self._questions.setdefault(producer_id, []).append(question)
        try:
            answer = await self.peers.call(home, op, org)
        finally:
            self._questions[producer_id].remove(question)
            if not self._questions[producer_id]:
                del self._questions[producer_id]
        if answer.error_code:
            return ErrorCode(answer.error_code)
        # An end that has overtaken this answer makes it void.
        return ErrorCode.TRANSACTION_ABORTABLE if question.ended >= answer.number else answer.number

    def _open(
        self, org: int, home: str, producer: TransactionalProducer, number: int
    ) -> Branch | None:
        """The branch of an open transaction, or None if an earlier one has not ended here yet."""
        found = self._table.branches.get(producer.producer_id)
        if found is None:
            found = self._table.branches[producer.producer_id] = Branch(
                org, producer.transactional_id, home, producer.producer_id,
                producer.producer_epoch, number, self._now_ms(),
            )  # fmt: skip
        elif found.number != number:
            # Home no longer has that transaction: home or this broker was restored.
            found.start_ms = min(found.start_ms, self._now_ms() - ASK_AFTER_MS)
            return None
        return found

    def _join(self, branch: Branch, new: Mapping[PartitionId, str]) -> None:
        """Record joining partitions; the event is queued before their batches."""
        branch.joining.update(new)
        branch.in_flight += 1

        def settled(_offsets: Sequence[int] | None) -> None:
            branch.joining.difference_update(new)
            self._landed(branch)

        self._journal.append(branch.joined(new), settled)

    def _landed(self, branch: Branch) -> None:
        """Note the end of an append; drops a branch without any part in the log."""
        self._ending.landed(branch)
        if branch.is_empty and self._table.branches.get(branch.producer_id) is branch:
            del self._table.branches[branch.producer_id]

    # --- offsets ----------------------------------------------------------------------------

    async def store_offsets(
        self,
        org: int,
        producer: TransactionalProducer,
        home: str,
        group: str,
        commit: Commit,
        *,
        implicit: bool,
        used: int,
    ) -> ErrorCode:
        """Store offsets of a group that the end of a transaction makes visible.

        `home`: the broker that coordinates the transaction, which must confirm the group.
        `implicit`: home adds the group. `used`: the bytes of the org's committed offsets.

        Raises:
            StorageError: the offsets are not stored.
        """
        if home not in self.peers.others:
            return ErrorCode.POLICY_VIOLATION
        found = self._table.branches.get(producer.producer_id)
        if found is None or found.epoch != producer.producer_epoch or group not in found.groups:
            op = JoinTransaction(producer, [], implicit, group=group)
            try:
                number = await self._number_at_home(org, home, op)
            except PeerError as e:
                self._limited.warning(home, "a transaction cannot be verified: %s", e)
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if isinstance(number, ErrorCode):
                return number
            found = self._open(org, home, producer, number)
            if found is None:
                return ErrorCode.CONCURRENT_TRANSACTIONS
        if (found.org, found.name) != (org, producer.transactional_id) or found.is_ending:
            return ErrorCode.TRANSACTION_ABORTABLE
        if not self._is_current(
            producer.producer_id, producer.connection, ConnectedRequestKind.OFFSETS
        ):
            return ErrorCode.NOT_COORDINATOR
        pending = self._table.pending_cost(org) + commit.cost
        known = found.groups[group].offsets.keys() if group in found.groups else set[Place]()
        new = len(commit.offsets.keys() - known)
        too_many = found.offsets + new > self._limits.partitions
        if too_many or used + pending > self._limits.org_offset_bytes:
            return ErrorCode.POLICY_VIOLATION
        await self._store(found, group, commit)
        return ErrorCode.NONE

    async def _store(self, branch: Branch, group: str, commit: Commit) -> None:
        """Store offsets in pieces, as `TransactionCoordinator.store_offsets` does."""
        branch.in_flight += 1  # until the last piece: the end waits for all of them
        kept = branch.groups.get(group)
        try:
            for stored in branch.with_offsets(group, commit):
                branch.in_flight += 1
                await self._journal.append([stored], lambda _offsets: self._landed(branch))
                kept = kept or branch.groups.get(group)
                if branch.groups.get(group) is not kept:
                    return  # it was deleted meanwhile
        finally:
            self._landed(branch)

    # --- batches ----------------------------------------------------------------------------

    def admit(
        self, header: BatchHeader, id_: PartitionId, request: ProduceFacts
    ) -> Callable[[Settle], Settle]:
        """A function that counts a batch as on its way.

        Raises:
            RecordsRefusedError: the batch must not be written.
        """
        found = self._table.branches.get(header.producer_id)
        if (
            found is None
            or (found.org, found.name) != (request.org, request.transactional_id)
            or found.is_ending
            or not found.has(id_)
        ):
            raise RecordsRefusedError(
                ErrorCode.TRANSACTION_ABORTABLE, "the transaction does not have the partition"
            )
        if found.epoch != header.producer_epoch:
            raise RecordsRefusedError(ErrorCode.INVALID_PRODUCER_EPOCH, OLD_EPOCH)
        if not self._is_current(
            header.producer_id, request.connection, ConnectedRequestKind.PRODUCE
        ):
            raise RecordsRefusedError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the producer has left this connection"
            )
        return partial(self._counted, found)

    def _is_current(self, producer_id: int, connection: bytes, kind: ConnectedRequestKind) -> bool:
        known = self._connections.get((producer_id, kind))
        if known is None:
            known = self._connections[producer_id, kind] = Connections()
            if len(self._connections) > _CONNECTIONS:
                self._connections.popitem(last=False)
        self._connections.move_to_end((producer_id, kind))
        return known.admit(connection)

    def _counted(self, branch: Branch, inner: Settle) -> Settle:
        branch.in_flight += 1
        return partial(self._settle, branch, inner)

    def _settle(self, branch: Branch, inner: Settle, outcome: Outcome) -> None:
        inner(outcome)
        self._landed(branch)

    # --- the end ----------------------------------------------------------------------------

    async def finish(self, org: int, home: str, end: BranchEnd) -> ErrorCode:
        """End the branch of a transaction that home has ended; NONE: no part of it is open here."""
        for question in self._questions.get(end.producer_id, ()):
            question.ended = max(question.ended, end.number)
        found = self._table.branches.get(end.producer_id)
        if found is None or found.org != org or found.number > end.number:
            return ErrorCode.NONE
        if found.home != home:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # Home no longer knows an earlier transaction, which is aborted.
        commit = end.commit and found.number == end.number
        try:
            await self.end(found, end.producer_epoch, commit=commit)
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    async def end(self, branch: Branch, epoch: int, *, commit: bool) -> None:
        """End a branch; an end on its way continues even if its caller no longer waits.

        Raises:
            StorageError: it is still open.
        """
        task = self._ends.get(branch)
        if task is None:
            branch.is_ending = True
            task = asyncio.get_running_loop().create_task(self._end(branch, epoch, commit))
            self._ends[branch] = task
            task.add_done_callback(partial(self._ended, branch))
        await asyncio.shield(task)

    async def _end(self, branch: Branch, epoch: int, commit: bool) -> None:
        await self._ending.quiet(branch)
        if self._table.branches.get(branch.producer_id) is branch:
            await self._ending.end_branch(branch, epoch, commit=commit)

    def _ended(self, branch: Branch, task: asyncio.Task[None]) -> None:
        self._ends.pop(branch, None)
        if not task.cancelled():
            task.exception()  # marks it as seen: its caller may no longer wait

    async def close(self) -> None:
        """Wait until the ends on their way are in the log."""
        while self._ends:
            await asyncio.wait(set(self._ends.values()))

    # --- branches in doubt ------------------------------------------------------------------

    async def resolve_old(self) -> None:
        """Ask home about branches that have long been open; the first time, about all of them."""
        before = self._now_ms() - ASK_AFTER_MS if self._asked_all else self._now_ms() + 1
        self._asked_all = True
        asked: dict[tuple[str, int], list[Branch]] = {}
        for each in self._table.branches.values():
            if each.start_ms <= before and not each.is_ending:
                asked.setdefault((each.home, each.org), []).append(each)
        for (home, org), some in asked.items():
            for at in range(0, len(some), _PER_OP):
                try:
                    await self._resolve(home, org, some[at : at + _PER_OP])
                except (PeerError, StorageError) as e:
                    self._limited.warning(
                        home,
                        "broker %s is not asked about its %d open transactions here: %s",
                        home[:16],
                        len(some),
                        e,
                    )
                    break

    async def abort(self, branch: Branch, epoch: int) -> ErrorCode:
        """End a branch for an administrator like its home; INVALID_TXN_STATE: it is open there.

        A home that is not in mesh.brokers is gone for good: its transaction is aborted.

        Raises:
            StorageError: it is still open.
        """
        if branch.home not in self.peers.others:
            await self.end(branch, max(epoch, branch.epoch), commit=False)
            return ErrorCode.NONE
        try:
            await self._resolve(branch.home, branch.org, [branch])
        except PeerError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        still = self._table.branches.get(branch.producer_id) is branch
        return ErrorCode.INVALID_TXN_STATE if still else ErrorCode.NONE

    async def _resolve(self, home: str, org: int, some: Sequence[Branch]) -> None:
        """End the branches that home has ended. Raises PeerError, StorageError."""
        rows = [ops.OpenBranch(each.name, each.producer_id, each.number) for each in some]
        answer = await self.peers.call(home, ResolveTransactions(rows), org)
        for branch, found in zip(some, answer.transactions, strict=False):
            if found.outcome == ops.TransactionOutcome.OPEN:
                continue
            if self._table.branches.get(branch.producer_id) is branch:
                epoch = max(found.producer_epoch, branch.epoch)
                await self.end(
                    branch, epoch, commit=found.outcome == ops.TransactionOutcome.COMMITTED
                )

    async def restate(self) -> None:
        """Restate all branches, so that their earlier events are dead.

        Raises:
            StorageError: some are not restated.
        """
        for each in list(self._table.branches.values()):
            while each in self._ends:
                await self.end(each, each.epoch, commit=False)  # waits for the end on its way
            if self._table.branches.get(each.producer_id) is each and (made := each.restated()):
                await self._journal.append(made)
