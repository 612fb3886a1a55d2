"""The writer of a log whose groups become durable as objects of a chain, several at a time.

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
import errno
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quafka_broker.partitions.errors import InDoubtError, MovedError
from quafka_broker.partitions.partition import Partition
from quafka_broker.wal.append_queue import AppendQueue, Share
from quafka_broker.wal.commit_group import CommitGroup
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Buffer, Disk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.reserve import Reserve
from quafka_broker.wal.writer import MAX_APPENDS, Writer
from quafka_loop import clock
from quafka_proto.log_format import FILE_HEADER_SIZE, INDEX_ROW_SIZE, IndexRow, encode_rows

log = logging.getLogger("quafka.broker.wal")

_UNSYNCED = FsyncPolicy(0.0)
_CLOSING_SECONDS = 4.0
_LINGER_STEPS = 8
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Chain(Protocol):
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

    chain: Chain
    policy: ChainPolicy


class ChainWriter(Writer):
    """Appends to the active segment and the chain."""

    def __init__(
        self,
        disk: Disk,
        contents: Contents,
        reserve: Reserve,
        segment_bytes: int,
        chain: Chain,
        policy: ChainPolicy,
    ) -> None:
        """The contents' last segment is the active one; all of it is in the chain."""
        super().__init__(disk, contents, reserve, _UNSYNCED, segment_bytes)
        # Commits take long here: an org may have a whole object pending.
        self.queue = AppendQueue(Share(policy.size, MAX_APPENDS))
        self._chain = chain
        self._policy = policy
        self._group_bytes = min(segment_bytes, policy.size)
        self._sent: deque[tuple[CommitGroup, asyncio.Future[None]]] = deque()
        self._all_settled = asyncio.Event()
        self._all_settled.set()
        self._sent_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        # The state after the last group that was sent.
        self._next_id = contents.next_id
        self._position = self._active.end
        self._entries = self._active.entries
        self._ends: dict[Partition, int] = {}

    @property
    def busy(self) -> bool:
        return bool(self.queue.waiting) or bool(self._sent)

    async def close(self) -> None:
        """Write all waiting appends. `failure` is set if the store does not answer in time."""
        closing = asyncio.ensure_future(super().close())
        await asyncio.wait([closing], timeout=_CLOSING_SECONDS)
        if not closing.done():
            self._fail(TimeoutError("the store has not answered"))
            if self._task is not None:
                self._task.cancel()
        await closing
        await self._settled(_CLOSING_SECONDS)
        self._stop_timer()
        if self._sent:
            self._doubt_sent()
        self.queue.refuse([], self.failure or "the broker stops")
        self.queue.answers.send_all()

    async def make_durable(self) -> tuple[int, int]:
        if self.failure is not None:
            raise OSError(errno.EIO, self.failure)
        return self._active.number, self._active.end

    async def make_log_durable(self) -> None:
        await self.make_durable()

    def give_up(self, reason: str) -> None:
        """Refuse everything from now on: another broker has the log."""
        if self.queue.refusal is not MovedError:
            self.queue.refusal = MovedError
            self.failure = self.queue.closed = reason
            log.critical("%s", reason)
            self._doubt_sent()
            self.queue.refuse([], reason)

    # --- commit -----------------------------------------------------------------------------

    async def _commit_group(self) -> None:
        await self._linger()
        await self._chain.room()
        await super()._commit_group()

    async def _linger(self) -> None:
        """Wait until an object is due, which is sooner the more bytes wait."""
        loop, linger, full = asyncio.get_running_loop(), self._policy.linger, self._group_bytes
        waited = -1
        while not (self._closing or self._seal_asked is not None or self.failure is not None):
            waiting = sum(append.size for append in self.queue.waiting)
            seconds = self._sent_at + linger * (1 - waiting / full) - loop.time()
            if seconds <= 0 or waiting == waited:
                return
            waited = waiting
            await self.queue.gather(MAX_APPENDS, waiting + full // _LINGER_STEPS, seconds)
            if len(self.queue.waiting) >= MAX_APPENDS:
                return

    @property
    def _end(self) -> int:
        return self._position

    def _new_group(self) -> CommitGroup:
        active, contents = self._active, self._contents
        return CommitGroup(
            active.salt, self._next_id, self._position, active.end, contents.epochs.current,
            self._ends,
        )  # fmt: skip

    def _commit(self, group: CommitGroup) -> None:
        """Send a written group."""
        if self.failure is not None:  # meanwhile
            self.queue.refuse(group.appends, self.failure)
            return
        first_id, position = self._next_id, self._position
        self._next_id, self._position = group.next_id, group.position
        self._entries += len(group.rows)
        self._writing = ()
        loop = asyncio.get_running_loop()
        self._sent_at = loop.time()
        done = self._chain.append(
            self._active.number, position, first_id, group.salt, group.buffers,
            encode_rows(group.rows), len(group.rows),
        )  # fmt: skip
        group.buffers = []  # the chain keeps them for as long as it needs them
        self._sent.append((group, done))
        self._all_settled.clear()
        if self._timer is None:
            self._timer = loop.call_later(self._policy.patience, self._lose_patience)
        done.add_done_callback(self._settle_sent)

    def _settle_sent(self, done: asyncio.Future[None]) -> None:
        """Publish durable groups, in order."""
        if not done.cancelled():
            done.exception()  # asyncio logs it otherwise, where the group was given up before
        sent = self._sent
        if not sent or not sent[0][1].done():
            return
        self._stop_timer()
        if self.refusing is not None and not self._closing and self.failure is None:
            self.queue.closed = None
        while sent and sent[0][1].done():
            group, done = sent[0]
            error = asyncio.CancelledError() if done.cancelled() else done.exception()
            if error is not None:
                self._lost(error)
                return
            sent.popleft()
            group.synced, group.put = clock.time_ns(), True
            self.stats.fsync.observe((group.synced - group.written) / 1e9)
            self._publish(group)
            self._forget_ends(group)
        if not sent:
            self._all_settled.set()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._policy.patience, self._lose_patience)
        self.queue.check_room()

    def _forget_ends(self, group: CommitGroup) -> None:
        """Drop the ends that the partitions themselves now have."""
        ends = self._ends
        for partition, _ in _placed(group):
            if ends.get(partition) == partition.high_watermark:
                del ends[partition]

    async def _begin_segment(self) -> None:
        """An object never spans two segments: everything sent must be published first."""
        await self._settled(None)
        if self.failure is not None:
            raise OSError(errno.EIO, self.failure)
        await super()._begin_segment()
        self._position, self._entries = self._active.end, self._active.entries

    async def _settled(self, seconds: float | None) -> None:
        """Wait until no group is under way, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_settled.wait()

    def _sync(self) -> None:
        """Do nothing: the local files are copies."""

    # --- failure ----------------------------------------------------------------------------

    def _truncate(self) -> None:
        """Truncate the local files to the sent groups."""
        self._active.log.truncate(self._position)
        self._active.index.truncate(FILE_HEADER_SIZE + INDEX_ROW_SIZE * self._entries)

    async def _take_back(self, error: OSError) -> None:
        """See `Writer`. A full disk may get room; after another error the local disk is lost, and
        so is this log: the shard is opened anew on another disk or folder."""
        self._ends.clear()
        for group, _ in self._sent:
            for partition, row in _placed(group):
                self._ends[partition] = row.base_offset + row.record_count
        await super()._take_back(error)
        if self.failure is None and error.errno not in _NO_ROOM:
            self._fail(error)

    def _lose_patience(self) -> None:
        """Refuse waiting appends after a long silence of the store."""
        self._timer = None
        if self.failure is not None or self.queue.closed is not None:
            return
        closed = f"the object store has taken no object for {self._policy.patience:g} seconds"
        trouble = self._chain.trouble
        self.refusing = closed if trouble is None else f"{closed}: {trouble}"
        log.error("%s; appends are refused", self.refusing)
        self.queue.closed = closed  # for clients, whom the store's address does not concern
        self.queue.refuse([], closed)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _lost(self, error: BaseException) -> None:
        """End with the chain: it is unknown whether groups under way are durable."""
        if self.failure is None:
            self._fail(error)
        self._doubt_sent()
        self.queue.refuse([], self.failure or "")

    def _doubt_sent(self) -> None:
        appends = [append for group, _ in self._sent for append in group.appends]
        self._sent.clear()
        self._all_settled.set()
        self._stop_timer()
        self.queue.written(appends)
        self.queue.fail(appends, InDoubtError, self.failure or "")


def _placed(group: CommitGroup) -> Iterator[tuple[Partition, IndexRow]]:
    """The partition and the row of each batch in a group."""
    partitions = (each for append in group.appends for each in append.partitions())
    return zip(partitions, group.rows, strict=True)
