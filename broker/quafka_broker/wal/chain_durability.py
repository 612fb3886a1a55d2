"""Groups become durable as objects of a chain, several at a time.

A group's ids, offsets and positions follow those of the previous group, which may still be under
way. A group is first written to the local segment, without a sync, because this file is only a
copy. It is published and answered when its object and all before it exist. So groups are published
in order, and readers see only durable records.

Each object costs money, so they are made at most every `linger` seconds, reduced by the share of a
full object that waits. The first append after a pause is sent at once. When the store has not
answered for `patience` seconds, waiting and new appends are refused until it does: they are
certainly not in the log. Appends that were sent remain pending, since refusing them could be wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quafka_broker.wal.acceptance import Acceptance
from quafka_broker.wal.active_segment import ActiveSegment
from quafka_broker.wal.append_queue import AppendQueue
from quafka_broker.wal.commit_group import MAX_APPENDS, CommitGroup
from quafka_broker.wal.disk import Buffer
from quafka_broker.wal.publisher import Publisher
from quafka_loop import clock
from quafka_proto.log_format import encode_rows

log = logging.getLogger("quafka.broker.wal")

_CLOSING_SECONDS = 4.0
_LINGER_STEPS = 8


class CommitChain(Protocol):
    """The chain in which groups become durable. For one event loop."""

    epoch: int
    """The number of the takeover by which this process is the writer."""

    @property
    def failure(self) -> str | None:
        """Why groups can no longer become durable; None while they can."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why the oldest object under way does not exist yet; None: it is not known."""
        ...

    async def room(self) -> None:
        """Wait while too much is under way. Returns at once if the chain has failed."""
        ...

    def append(
        self,
        segment: int,
        position: int,
        first_id: int,
        salt: int,
        entries: Sequence[Buffer],
        rows: bytes,
        count: int,
    ) -> asyncio.Future[None]:
        """Make a group durable after all earlier ones; the futures are done in order.

        A future's exception ends the chain: the group may be durable, but no later one is.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChainPolicy:
    """When an object is made, and how long the store may be silent.

    Attributes:
        linger: minimum seconds between two objects, reduced by the share of `size` that waits: at
            most 1 / linger objects a second, plus one for each `size` bytes.
        size: bytes of appends from which an object is made at once.
        patience: seconds without an answer of the store after which appends are refused.
    """

    linger: float
    size: int
    patience: float


class ChainLink(NamedTuple):
    """The chain of a log, and how it is used."""

    chain: CommitChain
    policy: ChainPolicy


class ChainDurability:
    """Groups are durable when their objects, and all before them, exist."""

    closing_seconds: float | None = _CLOSING_SECONDS

    def __init__(
        self,
        active: ActiveSegment,
        queue: AppendQueue,
        publisher: Publisher,
        acceptance: Acceptance,
        segment_bytes: int,
        link: ChainLink,
    ) -> None:
        """All of the active segment is in the chain."""
        self._active = active
        self._queue = queue
        self._publisher = publisher
        self._acceptance = acceptance
        self._chain, self._policy = link
        self.group_bytes = min(segment_bytes, self._policy.size)
        self._sent: deque[asyncio.Future[None]] = deque()  # one for each group under way
        self._sent_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._publisher.settled()
        self._stop_timer()
        self._publisher.doubt()
        self._queue.refuse([], self._acceptance.failure or "the broker stops")

    # --- commit -----------------------------------------------------------------------------

    async def due(self, hurried: Callable[[], bool]) -> None:
        await self._linger(hurried)
        await self._chain.room()

    async def _linger(self, hurried: Callable[[], bool]) -> None:
        """Wait until an object is due, which is sooner the more bytes wait."""
        queue, linger, full = self._queue, self._policy.linger, self.group_bytes
        now = asyncio.get_running_loop().time
        waited = -1
        while not hurried():
            waiting = sum(append.size for append in queue.waiting)
            seconds = self._sent_at + linger * (1 - waiting / full) - now()
            if seconds <= 0 or waiting == waited:
                return
            waited = waiting
            await queue.gather(MAX_APPENDS, waiting + full // _LINGER_STEPS, seconds)
            if len(queue.waiting) >= MAX_APPENDS:
                return

    def commit(self, group: CommitGroup) -> None:
        first = group.rows[0]
        done = self._chain.append(
            self._active.segment.number, first.position, first.global_id, group.salt,
            group.buffers, encode_rows(group.rows), len(group.rows),
        )  # fmt: skip
        group.buffers = []  # the chain keeps them for as long as it needs them
        self._sent_at = asyncio.get_running_loop().time()
        self._sent.append(done)
        if self._timer is None:
            self._start_timer()
        done.add_done_callback(self._settle_sent)

    def _settle_sent(self, done: asyncio.Future[None]) -> None:
        """Publish durable groups, in order."""
        if not done.cancelled():
            done.exception()  # asyncio logs it otherwise, where the group was given up before
        sent, acceptance = self._sent, self._acceptance
        if not (self._publisher.under_way and sent[0].done()):
            return
        self._stop_timer()
        if acceptance.refusing and not acceptance.is_closing and acceptance.failure is None:
            acceptance.closed = None
        while sent and sent[0].done():
            done = sent[0]
            error = asyncio.CancelledError() if done.cancelled() else done.exception()
            if error is not None:
                self._lost(error)
                return
            sent.popleft()
            self._publish()
        if sent:
            self._start_timer()
        self._queue.check_room()

    def _publish(self) -> None:
        active, group = self._active, self._publisher.under_way[0]
        group.synced, group.put = clock.time_ns(), True
        active.stats.fsync.observe((group.synced - group.written) / 1e9)
        self._publisher.publish()
        active.durable = active.segment.end

    # --- failure ----------------------------------------------------------------------------

    def _lose_patience(self) -> None:
        """Refuse waiting appends after a long silence of the store."""
        self._timer = None
        acceptance = self._acceptance
        if acceptance.closed is not None:
            return
        closed = f"the object store has taken no object for {self._policy.patience:g} seconds"
        trouble = self._chain.trouble
        acceptance.refusing = closed if trouble is None else f"{closed}: {trouble}"
        log.error("%s; appends are refused", acceptance.refusing)
        acceptance.closed = closed  # for clients, whom the store's address does not concern
        self._queue.refuse([], closed)

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._policy.patience, self._lose_patience)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _lost(self, error: BaseException) -> None:
        """End with the chain: it is unknown whether groups under way are durable."""
        if self._acceptance.failure is None:
            self._acceptance.fail(error)
        self._publisher.doubt()
        self._queue.refuse([], self._acceptance.failure or "")
