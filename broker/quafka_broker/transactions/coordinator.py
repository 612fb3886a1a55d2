"""The transaction coordinator: all transactional ids of all orgs. For one event loop.

The requests of one transactional id take turns, so none of them meets an unfinished change, which
Kafka's clients would have to retry (CONCURRENT_TRANSACTIONS). A turn runs to its end even if its
caller no longer waits. Batches are admitted outside of the turns: they only join an open
transaction, and its end waits for those on their way to the log.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from quafka_broker.groups.deadlines import DeadlineHeap
from quafka_broker.groups.group import Place
from quafka_broker.groups.table import Commit
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.transactions import rules
from quafka_broker.transactions.connections import ConnectedRequestKind
from quafka_broker.transactions.ending import Ending
from quafka_broker.transactions.events import (
    AddedPartition,
    Event,
    Forgotten,
    GroupDropped,
    Initialized,
    added,
    offsets_stored,
    spread,
)
from quafka_broker.transactions.finishing import Finishing
from quafka_broker.transactions.journal import TransactionJournal
from quafka_broker.transactions.limits import LONGEST_NAME, TransactionLimits
from quafka_broker.transactions.rules import EndPlan, InitPlan
from quafka_broker.transactions.states import TransactionalIdState
from quafka_broker.transactions.table import Key, TransactionTable
from quafka_broker.transactions.transaction import NO_EPOCH, NO_ID, OF_GROUP, Transaction
from quafka_broker.transactions.turns import ChangeTurns
from quafka_loop import clock
from quafka_mesh_ops.ops.transactions import TransactionalProducer
from quafka_proto.errors import ErrorCode

log = logging.getLogger("quafka.broker.transactions")

T = TypeVar("T")

_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
_NONE: Mapping[tuple[str, int], str] = {}

Session = tuple[int, int]
"""A producer id and epoch."""


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000


class TransactionCoordinator:
    """Runs the transactions. Methods that change state raise StorageError if they cannot."""

    def __init__(
        self,
        table: TransactionTable,
        journal: TransactionJournal,
        ending: Ending,
        limits: TransactionLimits,
        finishing: Finishing,
        allocate_id: Callable[[int], Awaitable[int]],
        *,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.table = table
        self.journal = journal
        self.limits = limits
        self.now_ms = now_ms
        self._ending = ending
        self._finishing = finishing
        self._allocate_id = allocate_id
        self._turns = ChangeTurns()
        self.deadlines: DeadlineHeap[Key] = DeadlineHeap()
        """Deadlines of open transactions, in ms since the epoch; some may have ended."""
        self.fenced = 0
        """Requests of fenced producers since the start."""

    # --- turns ------------------------------------------------------------------------------

    async def begin_in_turn(
        self, key: Key, change: Callable[[], Coroutine[Any, Any, T]]
    ) -> T | ErrorCode:
        """Run a change that may begin a transaction or a session, after all earlier changes.

        CONCURRENT_TRANSACTIONS, which clients retry: the last transaction has not ended at all
        other brokers.
        """
        if key in self.table.unfinished:
            await self._finishing.finished(key)

        async def run() -> T | ErrorCode:
            return _CONCURRENT if key in self.table.unfinished else await change()

        return await self._turns.take(key, run)

    async def close(self) -> None:
        """Wait for the changes under way."""
        await self._turns.close()

    def find(
        self,
        org: int,
        producer: TransactionalProducer,
        kind: ConnectedRequestKind = ConnectedRequestKind.COORDINATOR,
    ) -> Transaction | ErrorCode:
        """The transaction to change by a request's producer, or the error."""
        if not producer.transactional_id:
            return ErrorCode.INVALID_REQUEST
        found = self.table.entries.get((org, producer.transactional_id))
        found_ = rules.check_producer(found, producer.producer_id, producer.producer_epoch)
        if isinstance(found_, ErrorCode):
            return self._refused(found_)
        return found_ if self._is_current(found_, producer, kind) else ErrorCode.NOT_COORDINATOR

    def _refused(self, code: ErrorCode) -> ErrorCode:
        self.fenced += code is ErrorCode.PRODUCER_FENCED
        return code

    @staticmethod
    def _is_current(
        found: Transaction,
        producer: TransactionalProducer,
        kind: ConnectedRequestKind = ConnectedRequestKind.COORDINATOR,
    ) -> bool:
        """Whether the producer still uses the connection of a request."""
        return found.connections[kind].admit(producer.connection)

    # --- sessions ---------------------------------------------------------------------------

    async def init(
        self, org: int, producer: TransactionalProducer, timeout_ms: int
    ) -> Session | ErrorCode:
        """Begin a session: fence earlier ones, and abort their open transaction."""
        name = producer.transactional_id
        if not name or len(name) > LONGEST_NAME:
            return ErrorCode.INVALID_REQUEST
        if not 0 < timeout_ms <= self.limits.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT

        async def init() -> Session | ErrorCode:
            found = self.table.entries.get((org, name))
            if found is None and self.table.count(org) >= self.limits.org_ids:
                return ErrorCode.POLICY_VIOLATION
            user = Transaction(org, name) if found is None else found
            if not self._is_current(user, producer):
                return ErrorCode.NOT_COORDINATOR
            plan = rules.init(found, producer.producer_id, producer.producer_epoch)
            if isinstance(plan, ErrorCode):
                return self._refused(plan)
            return await self._init((org, name), found, plan, timeout_ms, user.moves())

        return await self.begin_in_turn((org, name), init)

    async def _init(
        self,
        key: Key,
        found: Transaction | None,
        plan: InitPlan,
        timeout_ms: int,
        moves: Sequence[Event] = (),
        *,
        waits: bool = True,
    ) -> Session | ErrorCode:
        successor = plan.successor
        if successor is None:
            assert found is not None
            return found.producer_id, found.epoch
        if successor.new_id or found is None:
            session = await self._allocate_id(key[0]), successor.epoch
        else:
            session = found.producer_id, successor.epoch
        if found is not None and (found.state is TransactionalIdState.ONGOING or found.in_flight):
            # A batch on its way may have begun a transaction. The last epoch is that of a
            # recovering producer, which may have to repeat its request.
            last_epoch = plan.last_epoch if found.elsewhere else NO_EPOCH
            fence = EndPlan(False, found.epoch + 1, successor, last_epoch)
            await self._ending.end(found, fence, session, commit=False, by_client=False)
            self._finishing.begin(found)
            if waits and not await self._finishing.finished(key):
                return _CONCURRENT
        began = Initialized(
            *key, *session, timeout_ms, plan.last_epoch, plan.previous_id, self.now_ms()
        )
        if found is not None:
            found.initializing = True
        try:
            await self.journal.append([began, *moves])
        finally:
            if found is not None:
                found.initializing = False
        return session

    async def fence(self, key: Key) -> None:
        """Begin a session without a producer, and abort the open transaction.

        For a restore: it does not wait for other brokers, which get the end later.
        """

        async def fence() -> None:
            found = self.table.entries[key]
            plan = rules.init(found, NO_ID, NO_EPOCH)
            assert not isinstance(plan, ErrorCode), plan
            timeout_ms = min(max(1, found.timeout_ms), self.limits.max_timeout_ms)
            await self._init(key, found, plan, timeout_ms, waits=False)

        await self._turns.take(key, fence)

    # --- partitions and groups --------------------------------------------------------------

    async def add(
        self,
        org: int,
        producer: TransactionalProducer,
        partitions: Sequence[AddedPartition],
        groups: Sequence[str] = (),
        elsewhere: Mapping[tuple[str, int], str] = _NONE,
        kind: ConnectedRequestKind = ConnectedRequestKind.COORDINATOR,
    ) -> ErrorCode:
        """Add partitions and groups to the producer's transaction.

        `elsewhere`: as in `Transaction.elsewhere`. `kind`: that of the request that adds them.
        """

        async def add() -> ErrorCode:
            found = self.find(org, producer, kind)
            if isinstance(found, ErrorCode):
                return found
            new = [
                each for each in partitions if PartitionId(org, *each[:3]) not in found.partitions
            ]
            others = [each for each in groups if each not in found.groups]
            far = {at: its for at, its in elsewhere.items() if found.elsewhere.get(at) != its}
            if not new and not others and not far:
                return ErrorCode.NONE
            if found.size + len(new) + len(others) + len(far) > self.limits.partitions:
                return ErrorCode.POLICY_VIOLATION
            now_ms = self.now_ms()
            made: list[Event] = [*spread(found.key, found.next_number(now_ms), far, now_ms)]
            if new or others:
                made += added(found.key, new, others, now_ms)
            await self.journal.append([*made, *found.moves()])
            self.began(found)
            return ErrorCode.NONE

        return await self.begin_in_turn((org, producer.transactional_id), add)

    async def join(
        self,
        org: int,
        producer: TransactionalProducer,
        broker: str,
        partitions: Sequence[tuple[str, int]],
        *,
        implicit: bool,
    ) -> int | ErrorCode:
        """Confirm that another broker's partitions are in the open transaction; returns its number.

        `partitions`: as in `Transaction.elsewhere`. `implicit`: add those that are not. An error is
        an ErrorCode, unlike a number.
        """
        key = (org, producer.transactional_id)
        kind = (
            ConnectedRequestKind.OFFSETS
            if any(at[1] == OF_GROUP for at in partitions)
            else ConnectedRequestKind.PRODUCE
        )
        if implicit:
            far = dict.fromkeys(partitions, broker)
            error = await self.add(org, producer, (), (), far, kind=kind)
            if error:
                return error
        found = self.find(org, producer, kind)
        if isinstance(found, ErrorCode):
            return found
        if key in self.table.unfinished:
            return _CONCURRENT
        if found.state is not TransactionalIdState.ONGOING or any(
            found.elsewhere.get(each) != broker for each in partitions
        ):
            return ErrorCode.TRANSACTION_ABORTABLE
        return found.number

    def began(self, found: Transaction) -> None:
        """Note the deadline of a transaction that may have begun."""
        if found.start_ms >= 0:
            self.deadlines.schedule(found.key, found.deadline_ms)

    def lacks(
        self,
        org: int,
        producer: TransactionalProducer,
        partitions: Sequence[PartitionId],
        elsewhere: Mapping[tuple[str, int], str] = _NONE,
    ) -> ErrorCode:
        """Whether the producer's open transaction lacks some of these partitions."""
        found = self.find(org, producer)
        if isinstance(found, ErrorCode):
            return found
        has = all(id_ in found.partitions for id_ in partitions)
        has = has and elsewhere.items() <= found.elsewhere.items()
        if found.state is TransactionalIdState.ONGOING and has:
            return ErrorCode.NONE
        return ErrorCode.TRANSACTION_ABORTABLE

    # --- offsets ----------------------------------------------------------------------------

    async def store_offsets(
        self,
        org: int,
        producer: TransactionalProducer,
        group: str,
        commit: Commit,
        *,
        implicit: bool,
        used: int,
    ) -> ErrorCode:
        """Store offsets that the transaction's commit makes visible.

        Many are stored in pieces, each in a write of its own, so that others have their turns. The
        transaction does not end before all are stored; a client that gets an error tries again.

        `used`: the bytes of the org's committed offsets.
        """

        async def store() -> ErrorCode:
            found = self.find(org, producer, ConnectedRequestKind.OFFSETS)
            if isinstance(found, ErrorCode):
                return found
            joins = group not in found.groups
            if joins and not implicit:
                return ErrorCode.TRANSACTION_ABORTABLE
            pending = self.table.pending_cost(org) + commit.cost
            if used + pending > self.limits.org_offset_bytes:
                return ErrorCode.POLICY_VIOLATION
            most = self.limits.partitions
            known = found.groups[group].offsets.keys() if not joins else set[Place]()
            new = len(commit.offsets.keys() - known)  # a repeated request has none
            if found.size + joins > most or found.offsets + new > most:
                return ErrorCode.POLICY_VIOLATION
            joined = added(found.key, (), (group,), self.now_ms()) if joins else []
            for stored in offsets_stored(found.key, group, commit):
                await self.journal.append([*joined, stored, *found.moves()])
                joined = []
                self.began(found)
                if group not in found.groups:
                    break  # it was deleted meanwhile, and with it what was stored for it
            return ErrorCode.NONE

        return await self.begin_in_turn((org, producer.transactional_id), store)

    async def drop_group(self, org: int, group: str) -> None:
        """Drop a deleted group from open transactions, which then commit nothing for it."""
        if self.table.with_offsets_of((org, group)):
            await self.journal.append([GroupDropped(org, group)])

    # --- the end ----------------------------------------------------------------------------

    async def end(
        self, org: int, producer: TransactionalProducer, *, commit: bool, bumps: bool
    ) -> Session | ErrorCode:
        """Commit or abort the producer's transaction."""
        key = (org, producer.transactional_id)

        async def end() -> Session | ErrorCode:
            found = self.table.entries.get(key)
            if not producer.transactional_id:
                return ErrorCode.INVALID_REQUEST
            if found is not None and found.start_ms < 0:
                await self._ending.quiet(found)  # a batch on its way may begin the transaction
            id_, epoch = producer.producer_id, producer.producer_epoch
            plan = rules.end(found, id_, epoch, commit, bumps)
            if isinstance(plan, ErrorCode):
                return self._refused(plan)
            assert found is not None
            if not self._is_current(found, producer):
                return ErrorCode.NOT_COORDINATOR
            if not plan.again:
                if found.unfinished is not None:
                    return _CONCURRENT
                await self._end(found, plan, commit=commit, by_client=True)
            return found.producer_id, found.epoch

        if key in self.table.unfinished and bumps:
            await self._finishing.finished(key)  # the end may be that of the next transaction
        return await self._turns.take(key, end)

    async def abort(self, key: Key, is_due: Callable[[Transaction], bool]) -> bool:
        """Abort an open transaction and fence its producer; returns whether it was open."""

        async def abort() -> bool:
            found = self.table.entries.get(key)
            if (
                found is None
                or found.state is not TransactionalIdState.ONGOING
                or not is_due(found)
            ):
                return False
            await self._end(found, rules.abort(found), commit=False, by_client=False)
            return True

        return await self._turns.take(key, abort)

    async def _end(
        self, found: Transaction, plan: EndPlan, *, commit: bool, by_client: bool
    ) -> None:
        id_ = found.producer_id
        if plan.successor.new_id:
            id_ = await self._allocate_id(found.org)
        session = id_, plan.successor.epoch
        await self._ending.end(found, plan, session, commit=commit, by_client=by_client)
        self._finishing.begin(found)

    # --- expiry -----------------------------------------------------------------------------

    async def forget(self, key: Key, *, unused_ms: int = -1) -> None:
        """Drop a transactional id that has been unused for this long; by default, until expiry."""
        if unused_ms < 0:
            unused_ms = self.limits.expiration_ms

        async def forget() -> None:
            found = self.table.entries.get(key)
            if found is None or found.start_ms >= 0 or found.in_flight or found.unfinished:
                return
            if found.used_ms <= self.now_ms() - unused_ms:
                await self.journal.append([Forgotten(*key)])

        await self._turns.take(key, forget)

    async def restate(self, key: Key) -> None:
        """Restate an id's whole state, so that its earlier events are dead."""

        async def restate() -> None:
            found = self.table.entries.get(key)
            if found is not None and found.epoch != NO_EPOCH:
                await self._ending.quiet(found)
                await self.journal.append(found.restated())

        await self._turns.take(key, restate)
