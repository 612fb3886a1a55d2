"""Finishes transactions: after home has durably ended one, the other brokers must follow.

Requests to the other brokers are repeated until they are answered. After a restart the journal has
the unfinished transactions. Each broker has a few workers, which send the ends of several
transactions at once; so a broker that does not answer costs one op every few seconds, and only the
memory of a set of ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from quafka_broker.partitions.errors import StorageError
from quafka_broker.transactions.events import Finished
from quafka_broker.transactions.journal import TransactionJournal
from quafka_broker.transactions.peers import PeerError, Peers
from quafka_broker.transactions.table import Key, TransactionTable
from quafka_broker.transactions.transaction import Transaction
from quafka_loop import clock
from quafka_mesh_ops.ops.branches import BranchEnd, FinishTransactions
from quafka_mesh_ops.transport.log_limit import LimitedLog

log = logging.getLogger("quafka.broker.transactions")

PATIENCE = 2.0
"""Seconds after the end of a transaction in which requests wait until all brokers have ended it.
Later they are answered CONCURRENT_TRANSACTIONS at once. It usually takes a few milliseconds."""
_WORKERS = 4  # for each broker: an end does not wait for the answer to earlier ones
_PER_OP = 200
_FIRST_DELAY, _LONGEST_DELAY = 0.05, 2.0


class Finishing:
    """Makes the other brokers end their parts of transactions. For one event loop."""

    def __init__(
        self,
        table: TransactionTable,
        journal: TransactionJournal,
        landed: Callable[[Transaction], None],
        peers: Peers,
    ) -> None:
        """`landed` is called when an append of a transaction is in the log, or has failed."""
        self._table = table
        self._journal = journal
        self._landed = landed
        self._limited = LimitedLog(log)
        self.peers = peers
        self._queues: dict[str, dict[Key, None]] = {}
        self._wake: dict[str, asyncio.Event] = {}
        self._waiting: dict[Key, asyncio.Future[None]] = {}
        self.patience = PATIENCE

    # --- waiting ----------------------------------------------------------------------------

    async def finished(self, key: Key) -> bool:
        """Wait until the last transaction of an id has ended everywhere.

        At most until it is `patience` old: waiting requests take the room of others.
        """
        found = self._table.unfinished.get(key)
        if found is None or found.unfinished is None:
            return True
        left = self.patience - (clock.time_ns() // 1_000_000 - found.unfinished.since_ms) / 1000
        if left <= 0:
            return False
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
        await asyncio.wait([waiting], timeout=min(left, self.patience))
        return key not in self._table.unfinished

    # --- sending ----------------------------------------------------------------------------

    def begin(self, found: Transaction) -> None:
        """Make the other brokers end a transaction whose end is in the log."""
        if found.unfinished is not None:
            for broker in sorted(found.unfinished.left):
                self._queue(broker, found.key)

    def _queue(self, broker: str, key: Key) -> None:
        self._queues.setdefault(broker, {})[key] = None
        if broker in self._wake:
            self._wake[broker].set()

    async def run(self) -> None:
        """Send queued ends until cancelled."""
        for found in list(self._table.unfinished.values()):
            self.begin(found)
        for broker in sorted(self._queues.keys() - set(self.peers.others)):
            log.error(
                "transactions have ended that broker %s must end, too, but mesh.brokers does not "
                "have it: their partitions there stay unstable", broker,
            )  # fmt: skip
        async with asyncio.TaskGroup() as tasks:
            for broker in self.peers.others:
                self._wake[broker] = asyncio.Event()
                for _ in range(_WORKERS):
                    tasks.create_task(self._work(broker))

    async def _work(self, broker: str) -> None:
        delay, wake = 0.0, self._wake[broker]
        queue = self._queues.setdefault(broker, {})
        while True:
            if not queue:
                wake.clear()
                await wake.wait()
                continue
            org, some = self._take(queue)
            if await self._send(broker, org, some):
                delay = 0.0
                continue
            queue.update(dict.fromkeys(found.key for found in some))
            delay = min(max(_FIRST_DELAY, 2 * delay), _LONGEST_DELAY)
            await asyncio.sleep(delay)

    def _take(self, queue: dict[Key, None]) -> tuple[int, list[Transaction]]:
        """Take the first transactions of the queue that belong to one org."""
        org = next(iter(queue))[0]
        some: list[Transaction] = []
        for key in list(queue)[:_PER_OP]:
            if key[0] != org:
                break
            del queue[key]
            found = self._table.unfinished.get(key)
            if found is not None:
                some.append(found)
        return org, some

    async def _send(self, broker: str, org: int, some: Sequence[Transaction]) -> bool:
        """Send ends to a broker; returns whether it has ended all of them."""
        sent = [(found, found.unfinished) for found in some if found.unfinished is not None]
        if not sent:
            return True
        rows = [
            BranchEnd(left.producer_id, left.epoch, found.number, left.commit)
            for found, left in sent
        ]
        try:
            answer = await self.peers.call(broker, FinishTransactions(rows), org)
        except PeerError as e:
            self._limited.warning(broker, "broker %s ends no transactions: %s", broker[:16], e)
            return False
        good = True
        for (found, left), code in zip(sent, answer.transactions, strict=False):
            if code:
                self._limited.warning(
                    broker, "broker %s cannot end transaction %r: error %d",
                    broker[:16], found.name, code,
                )  # fmt: skip
                good = False
            elif found.unfinished is left:
                left.left.discard(broker)
                if not left.left and not await self._finish(found):
                    left.left.add(broker)
                    good = False
        return good and len(answer.transactions) == len(sent)

    async def _finish(self, found: Transaction) -> bool:
        """Finish a transaction that all brokers have ended: the next one may begin."""
        found.in_flight += 1
        try:
            await self._journal.append([Finished(*found.key, found.number)])
        except StorageError as e:
            self._limited.warning("storage", "a transaction cannot be finished now: %s", e)
            return False
        finally:
            self._landed(found)
        waiting = self._waiting.pop(found.key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        return True
