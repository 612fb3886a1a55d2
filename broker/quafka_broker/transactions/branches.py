"""The branches at this broker of transactions that other brokers coordinate (ADR 47).

A batch joins a branch after home has confirmed that its transaction is open and has the partition
(as KIP-890's verification). The event that records this is in the log before the batch, in the same
write. So a partition has no open transaction that its home does not know of, and that this broker
does not know the home of.

Home ends a branch: the end is one group of entries, as that of a transaction. An end that passes
the answer of home to an earlier question makes that answer void.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.outcome import Outcome, Settle
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.sources.source import ProduceRequest, RefusedError
from quafka_broker.transactions.branch import Branch
from quafka_broker.transactions.connections import Connections
from quafka_broker.transactions.ending import Ending
from quafka_broker.transactions.journal import TransactionJournal
from quafka_broker.transactions.peers import NoPeers, PeerError, Peers
from quafka_broker.transactions.table import Table
from quafka_mesh_ops.ops import branches as ops
from quafka_mesh_ops.ops.admin import TopicPartitions
from quafka_mesh_ops.ops.branches import BranchEnd, JoinTransaction, ResolveTransactions
from quafka_mesh_ops.ops.transactions import TransactionalProducer
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_proto.errors import ErrorCode
from quafka_proto.records import TRANSACTIONAL, BatchHeader

log = logging.getLogger("quafka.broker.transactions")

ASK_AFTER_MS = 30_000
"""The age at which home is asked what has become of a branch. It ends branches by itself."""
_PER_OP = 500
_CONNECTIONS = 10_000
"""Producers whose connections are remembered."""

Joining = Sequence[tuple[BatchHeader, PartitionId, str]]
"""Batches: the header, the partition and the topic of each."""

_ANSWERS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""Home's errors as answers to a produce. As in Kafka, NOT_ENOUGH_REPLICAS makes clients retry."""


@dataclass(slots=True, eq=False)
class _Question:
    """Home is asked about a producer. `ended`: the last transaction that has ended meanwhile."""

    ended: int = 0


class Branches:
    """Admits batches to branches, and ends them. For one event loop."""

    def __init__(
        self,
        table: Table,
        journal: TransactionJournal,
        ending: Ending,
        now_ms: Callable[[], int],
    ) -> None:
        self._table = table
        self._journal = journal
        self._ending = ending
        self._now_ms = now_ms
        self._limited = LimitedLog(log, 60.0)
        self.peers: Peers = NoPeers()
        """Set once, before the first op."""
        self._questions: dict[int, list[_Question]] = {}
        self._connections: OrderedDict[int, Connections] = OrderedDict()
        self._ends: dict[Branch, asyncio.Task[None]] = {}
        self._asked_all = False

    def is_elsewhere(self, request: ProduceRequest) -> bool:
        """Whether another broker coordinates the transaction of a request."""
        return bool(request.home) and request.home != self.peers.node_id

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

    async def join(self, request: ProduceRequest, batches: Joining) -> RefusedError | None:
        """Have home confirm the partitions that have not joined; the refusal of their batches."""
        missing = list(self._missing(batches))
        if not missing:
            return None
        sessions = {(header.producer_id, header.producer_epoch) for header, _, _ in missing}
        if len(sessions) > 1:
            return RefusedError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the batches are of several producers"
            )
        if request.home not in self.peers.others:
            return RefusedError(
                ErrorCode.POLICY_VIOLATION,
                "mesh.brokers does not have the broker that coordinates the transaction",
            )
        new = {id_: topic for _, id_, topic in missing}
        try:
            return await self._ask(request, *sessions.pop(), new)
        except PeerError as e:
            self._limited.warning(request.home, "a transaction cannot be verified: %s", e)
            return RefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"the coordinator of the transaction: {e}"
            )

    async def _ask(
        self, request: ProduceRequest, producer_id: int, epoch: int, new: Mapping[PartitionId, str]
    ) -> RefusedError | None:
        """Ask home, and join. Raises PeerError."""
        topics: dict[str, list[int]] = {}
        for id_, topic in new.items():
            topics.setdefault(topic, []).append(id_.partition)
        op = JoinTransaction(
            TransactionalProducer(request.transactional_id, producer_id, epoch, request.connection),
            [TopicPartitions(*each) for each in topics.items()],
            request.implicit,
        )
        question = _Question()
        self._questions.setdefault(producer_id, []).append(question)
        try:
            answer = await self.peers.call(request.home, op, request.org)
        finally:
            self._questions[producer_id].remove(question)
            if not self._questions[producer_id]:
                del self._questions[producer_id]
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            return RefusedError(_ANSWERS.get(code, code), "refused by the coordinator")
        if question.ended >= answer.number:
            return RefusedError(ErrorCode.INVALID_TXN_STATE, "the transaction has ended")
        return self._join(request, producer_id, epoch, answer.number, new)

    def _join(
        self,
        request: ProduceRequest,
        producer_id: int,
        epoch: int,
        number: int,
        new: Mapping[PartitionId, str],
    ) -> RefusedError | None:
        """Record that partitions join; the event is queued before their batches."""
        found = self._table.branches.get(producer_id)
        if found is not None and found.number != number:
            # Home does not have that transaction any more: it, or this broker, was restored.
            found.start_ms = min(found.start_ms, self._now_ms() - ASK_AFTER_MS)
            return RefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, "an earlier transaction is open")
        if found is None:
            found = self._table.branches[producer_id] = Branch(
                request.org, request.transactional_id, request.home, producer_id, epoch, number,
                self._now_ms(),
            )  # fmt: skip
        branch = found
        new = {id_: topic for id_, topic in new.items() if not branch.has(id_)}
        branch.joining.update(new)
        branch.in_flight += 1

        def settled(offsets: Sequence[int] | None) -> None:
            branch.joining.difference_update(new)
            self._ending.landed(branch)
            if offsets is None and not branch.partitions and not branch.joining:
                self._drop(branch)

        self._journal.append(branch.joined(new), settled)
        return None

    def _drop(self, branch: Branch) -> None:
        """Forget a branch of which nothing is in the log."""
        if self._table.branches.get(branch.producer_id) is branch:
            del self._table.branches[branch.producer_id]

    # --- batches ----------------------------------------------------------------------------

    def admit(
        self, header: BatchHeader, id_: PartitionId, request: ProduceRequest
    ) -> Callable[[Settle], Settle]:
        """What counts a batch as on its way.

        Raises:
            RefusedError: it must not be written.
        """
        found = self._table.branches.get(header.producer_id)
        if (
            found is None
            or (found.org, found.name) != (request.org, request.transactional_id)
            or found.is_ending
            or not found.has(id_)
        ):
            raise RefusedError(
                ErrorCode.INVALID_TXN_STATE, "the transaction does not have the partition"
            )
        if found.epoch != header.producer_epoch:
            raise RefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                "another session of the transactional id has begun",
            )
        if not self._is_current(header.producer_id, request.connection):
            raise RefusedError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the producer has left this connection"
            )
        return partial(self._counted, found)

    def _is_current(self, producer_id: int, connection: bytes) -> bool:
        known = self._connections.get(producer_id)
        if known is None:
            known = self._connections[producer_id] = Connections()
            if len(self._connections) > _CONNECTIONS:
                self._connections.popitem(last=False)
        self._connections.move_to_end(producer_id)
        return known.admit(connection)

    def _counted(self, branch: Branch, inner: Settle) -> Settle:
        branch.in_flight += 1
        return partial(self._settle, branch, inner)

    def _settle(self, branch: Branch, inner: Settle, outcome: Outcome) -> None:
        inner(outcome)
        self._ending.landed(branch)

    # --- the end ----------------------------------------------------------------------------

    async def finish(self, org: int, home: str, end: BranchEnd) -> ErrorCode:
        """Home has ended a transaction: end its branch; NONE: nothing of it is open here."""
        for question in self._questions.get(end.producer_id, ()):
            question.ended = max(question.ended, end.number)
        found = self._table.branches.get(end.producer_id)
        if found is None or found.org != org or found.number > end.number:
            return ErrorCode.NONE
        if found.home != home:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # Of an earlier transaction its home knows nothing any more: it is aborted.
        commit = end.commit and found.number == end.number
        try:
            await self.end(found, end.producer_epoch, commit=commit)
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    async def end(self, branch: Branch, epoch: int, *, commit: bool) -> None:
        """End a branch; an end on its way goes on, even if its caller no longer waits.

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
            task.exception()  # seen: its caller may not wait any more

    async def close(self) -> None:
        """Let the ends on their way be logged."""
        while self._ends:
            await asyncio.wait(set(self._ends.values()))

    # --- branches in doubt ------------------------------------------------------------------

    async def resolve_old(self) -> None:
        """Ask home about branches that are open for long; the first time, about all of them."""
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
        """End a branch for an administrator, as its home has; INVALID_TXN_STATE: it is open there.

        A home that mesh.brokers does not have is gone for good: its transaction is aborted.

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
        rows = [ops.Branch(each.name, each.producer_id, each.number) for each in some]
        answer = await self.peers.call(home, ResolveTransactions(rows), org)
        for branch, found in zip(some, answer.transactions, strict=False):
            if found.outcome == ops.Outcome.OPEN:
                continue
            if self._table.branches.get(branch.producer_id) is branch:
                epoch = max(found.producer_epoch, branch.epoch)
                await self.end(branch, epoch, commit=found.outcome == ops.Outcome.COMMITTED)

    async def restate(self) -> None:
        """Write all branches again, so that their earlier events are dead.

        Raises:
            StorageError: some are not written again.
        """
        for each in list(self._table.branches.values()):
            while each in self._ends:
                await self.end(each, each.epoch, commit=False)  # waits for the end on its way
            if self._table.branches.get(each.producer_id) is each and each.partitions:
                await self._journal.append(each.joined(each.partitions))
