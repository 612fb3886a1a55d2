"""The one writer of the log.

Group commit: the writer takes all waiting appends, assigns ids and offsets, writes them with one
call and commits them once. Appends that arrive meanwhile form the next group. So the first append
never waits for others, and with more producers, more appends share a sync.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence

from quafka_broker.wal.acceptance import Acceptance
from quafka_broker.wal.active_segment import ActiveSegment
from quafka_broker.wal.append_queue import AppendQueue
from quafka_broker.wal.commit_group import MAX_APPENDS, Append, CommitGroup
from quafka_broker.wal.durability import Durability
from quafka_broker.wal.errors import SyncError
from quafka_broker.wal.publisher import Publisher
from quafka_broker.wal.reserve import Reserve
from quafka_loop.eager_task import EagerTask

log = logging.getLogger("quafka.broker.wal")

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Writer:
    """Appends to the active segment, and rolls to the next one."""

    def __init__(
        self,
        active: ActiveSegment,
        queue: AppendQueue,
        publisher: Publisher,
        durability: Durability,
        acceptance: Acceptance,
        reserve: Reserve,
        segment_bytes: int,
    ) -> None:
        self._active = active
        self._queue = queue
        self._publisher = publisher
        self._durability = durability
        self._acceptance = acceptance
        self._reserve = reserve
        self._segment_bytes = segment_bytes
        self._writing: Sequence[Append] = ()  # taken from the queue, not yet committed
        self._task: EagerTask[None] | None = None
        self._seal_asked: asyncio.Future[None] | None = None

    # --- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write."""
        self._task = EagerTask(self._write_groups())
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Write and commit all waiting appends. The log has failed if that is impossible."""
        self._acceptance.close()
        self._queue.wake()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._durability.closing_seconds)
            if not self._task.done():
                self._acceptance.fail(TimeoutError("the store has not answered"))
                self._task.cancel()
                await asyncio.wait([self._task])
        self._queue.answers.send_all()
        await self._durability.close()
        self._queue.answers.send_all()

    @property
    def is_busy(self) -> bool:
        """Whether appends wait."""
        return bool(self._queue.waiting or self._publisher.under_way)

    def give_up(self, reason: str) -> None:
        """Refuse everything from now on: another broker has the log."""
        if self._acceptance.give_up(reason):
            self._publisher.doubt()
            self._queue.refuse([], reason)

    async def seal(self) -> None:
        """Begin a new segment, unless the active one is empty: sealed ones can be rewritten.

        Raises:
            OSError: the segment is still the active one, or the log has failed.
        """
        if self._acceptance.closed is not None:
            raise OSError(errno.EIO, self._acceptance.closed)
        if self._seal_asked is None:
            self._seal_asked = asyncio.get_running_loop().create_future()
            self._queue.wake()
        await asyncio.shield(self._seal_asked)

    async def _seal_if_asked(self) -> None:
        asked, self._seal_asked = self._seal_asked, None
        if asked is None:
            return
        try:
            await self._begin_segment()
        except OSError as e:
            if isinstance(e, SyncError):
                self._acceptance.fail(e)
            asked.set_exception(e)
        else:
            asked.set_result(None)

    # --- commit -----------------------------------------------------------------------------

    async def _write_groups(self) -> None:
        queue = self._queue
        while True:
            await queue.wait_for_work()
            await self._seal_if_asked()
            while queue.waiting:
                await self._durability.due(self._is_hurried)
                await self._commit_group()
                await self._let_others_run()
                await self._seal_if_asked()
            if self._acceptance.is_closing:
                return

    def _is_hurried(self) -> bool:
        acceptance = self._acceptance
        return (
            acceptance.is_closing or self._seal_asked is not None or acceptance.failure is not None
        )

    async def _let_others_run(self) -> None:
        """Wait for the answers of the last group, whose callers often have the next append.

        Without a sync, a commit may not have yielded at all.
        """
        answers = self._queue.answers
        if not self._active.syncs_groups:
            await self._queue.turn()
        while answers.are_due:
            await self._queue.turn()

    def _ended(self, task: asyncio.Future[None]) -> None:
        """Refuse appends if a bug has ended the writer: none may keep waiting for it."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the log's writer failed", exc_info=error)
            self._acceptance.fail(error)
            self._queue.doubt(self._writing)
            self._queue.refuse([], str(error))

    async def _commit_group(self) -> None:
        """Write the waiting appends, up to the size of a segment, and commit them."""
        queue, active = self._queue, self._active
        if self._acceptance.failure is not None:
            queue.refuse([], self._acceptance.failure)
            return
        appends: list[Append] = []
        try:
            if not self._reserve.held:
                await self._hold_reserve()
            if active.end >= self._segment_bytes:
                await self._begin_segment()
            group = active.new_group(self._publisher.ends)
            self._writing = appends = group.appends
            await self._fill(group)
            if appends:
                await active.write(group)
        except OSError as e:
            await self._take_back(e)
            self._not_written(e, appends)
        else:
            if appends:
                self._commit(group)
        self._writing = ()
        queue.check_room()

    def _commit(self, group: CommitGroup) -> None:
        """Let the next group follow this one, which has been written."""
        failure = self._acceptance.failure
        if failure is not None and self._active.is_copy:  # nothing of it is in the chain
            self._queue.refuse(group.appends, failure)
            return
        self._active.advance(group)
        self._publisher.under_way.append(group)
        self._durability.commit(group)

    async def _fill(self, group: CommitGroup) -> None:
        """Add the waiting appends, yielding between the steps of one with many members, since only
        the writer changes positions."""
        waiting, most = self._queue.waiting, self._durability.group_bytes
        while waiting and group.size < most and len(group.appends) < MAX_APPENDS:
            append = waiting.popleft()
            group.add(append)
            if append.members:
                for step, _ in enumerate(group.add_members(append)):
                    if step:
                        await self._queue.turn()

    async def _hold_reserve(self) -> None:
        """Hold the reserve again after its use; producers wait for this.

        Not if only urgent appends wait, whose room it would take.
        """
        if all(append.urgent for append in self._queue.waiting):
            return
        if not await self._active.run(self._reserve.hold):
            self._queue.refuse([], "the disk is full", but_urgent=True)

    async def _begin_segment(self) -> None:
        """Begin a new segment, unless the active one is empty. Raises OSError."""
        await self._publisher.settled()
        if self._acceptance.failure is not None:
            raise OSError(errno.EIO, self._acceptance.failure)
        await self._active.begin_next()

    # --- failure ----------------------------------------------------------------------------

    async def _take_back(self, error: OSError) -> None:
        """Durably truncate the remains of a failed write. If that fails, the log has failed.

        After a failed sync the log has always failed. The truncation then only makes it unlikely
        that the next start finds batches that were never acknowledged.
        """
        acceptance = self._acceptance
        if isinstance(error, SyncError):
            acceptance.fail(error)
        try:
            await self._active.take_back()
        except OSError as e:
            if acceptance.failure is None:
                acceptance.fail(e)
        self._publisher.taken_back()
        if acceptance.failure is None:
            acceptance.write_failed(error)
            if self._active.is_copy and error.errno not in _NO_ROOM:
                # The shard is opened anew on another disk or folder.
                acceptance.fail(error)

    def _not_written(self, error: OSError, appends: list[Append]) -> None:
        """Refuse all appends. On a full disk, retry the urgent ones with the reserve instead."""
        queue = self._queue
        if self._acceptance.failure is not None:
            queue.written(appends)
            queue.doubt(appends)
            queue.refuse([], self._acceptance.failure)
            return
        retries = error.errno == errno.ENOSPC and any(
            append.urgent for append in (*appends, *queue.waiting)
        )
        retries = retries and self._reserve.release()
        queue.refuse(appends, error.strerror or str(error), but_urgent=retries)
