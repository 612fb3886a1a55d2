"""Freeing dead records and grouping sealed segments, in the background.

A segment without live records is removed. A segment that is mostly dead, or in which partitions are
finely interleaved, is rewritten. The reads and writes for it are limited to a rate. The thread
sleeps for longer than it computes, and gives way to waiting appends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.rewrite_segment import Examined, SegmentRewrite, Steps, examine
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_proto.errors import Malformed
from quafka_proto.log_format import APPENDED, FILE_HEADER_SIZE

log = logging.getLogger("quafka.broker.wal.rewrite")

_POLL_SECONDS = 10.0
_DEAD_SHARE = 0.5
_FINE_BYTES = 256 << 10  # contiguous runs of this size hardly cost a reader seeks
_CPU_SHARE = 0.25
_STEP_BACK_SECONDS = 0.001
_STEPS_BACK = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RewritePolicy:
    """The settings `wal.rewrite` and `wal.rewrite.bytes.per.second`.

    Attributes:
        rewrite: if not set, segments without live records are removed, and none is rewritten.
        bytes_per_second: the limit of bytes read and written, together.
    """

    rewrite: bool = True
    bytes_per_second: int = 32 << 20


class _Seen(NamedTuple):
    """The state of a segment when it was last examined."""

    salt: int
    live_records: int


class _StoppedError(Exception):
    """The broker stops."""


class RewriteTask:
    """Works on one log's sealed segments, one at a time."""

    def __init__(
        self,
        disk: Disk,
        contents: Contents,
        policy: RewritePolicy,
        save: Callable[[], Awaitable[object]],
        make_durable: Callable[[], Awaitable[object]],
        both_cover: Callable[[], int],
        busy: Callable[[], bool],
        deletions: Callable[[], int],
    ) -> None:
        """The callbacks belong to the log.

        `save` takes a checkpoint, `make_durable` syncs the log, `both_cover` gives the id below
        which both checkpoints cover everything, `busy` is true while appends wait, and `deletions`
        counts deletions.
        """
        self._disk = disk
        self._contents = contents
        self._policy = policy
        self._save = save
        self._make_durable = make_durable
        self._both_cover = both_cover
        self._busy = busy
        self._deletions = deletions
        self._seen: dict[int, _Seen] = {}
        self._saved: int | None = None  # the count of deletions at the last checkpoint
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wal-rewrite")

    async def run(self) -> None:
        """Run once whenever segments or deletions have changed, until cancelled."""
        last: tuple[int, int] | None = None
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now = (len(self._contents.segments), self._deletions())
            if now == last:
                continue
            try:
                await self.run_once()
                last = now
            except Exception:  # a bug must not let the log grow for ever
                log.exception("segments cannot be rewritten now; the next run tries again")

    async def close(self) -> None:
        """Abandon the current rewrite. Call it when `run` has been cancelled."""
        self._stop.set()
        await asyncio.to_thread(self._thread.shutdown)

    async def run_once(self) -> int:
        """Remove or rewrite every sealed segment that is worth it; returns the freed bytes."""
        freed = 0
        self._saved = None
        sealed = self._contents.segments[:-1]  # nothing is appended to them any more
        for segment in sealed:
            if not await self._live_records(segment):
                freed += await self._or_skip(segment, self._remove(segment))
        known = {segment.number for segment in self._contents.segments}
        self._contents.quarantine.drop_dead(known, self._contents.partitions)
        if self._policy.rewrite:
            damaged = {damage.segment for damage in self._contents.quarantine.damages}
            for segment in sealed:
                if segment in self._contents.segments and segment.number not in damaged:
                    freed += await self._or_skip(segment, self._consider(segment))
        known = {segment.number for segment in self._contents.segments}
        self._seen = {number: seen for number, seen in self._seen.items() if number in known}
        return freed

    async def _or_skip(self, segment: Segment, work: Coroutine[Any, Any, int]) -> int:
        try:
            return await work
        except (OSError, Malformed) as e:
            log.warning("%s is left as it is: %s", log_name(segment.number), e)
            return 0

    async def _make_droppable(self, segment: Segment) -> None:
        """Make sure that no start needs the records that are about to be dropped.

        Both checkpoints must have the idempotent producers that wrote them: a producer lives
        longer than its batches, and the older checkpoint is used if the newest is damaged. And
        records that are dead in memory must be dead on disk, too.

        Raises:
            OSError: a checkpoint or a sync failed.
        """
        deletions = self._deletions()
        if self._saved != deletions:  # no event has the registry's own log start
            await self._save()
            self._saved = deletions
        if self._both_cover() < segment.next_id:
            await self._save()
        await self._make_durable()

    async def _live_records(self, segment: Segment) -> int:
        await self._contents.live.settle()
        return self._contents.live.count(segment.number)

    async def _remove(self, segment: Segment) -> int:
        """Remove a segment, index first: a log without an index is whole; an index without its log
        would look like damage."""
        await self._make_droppable(segment)

        def remove() -> int:
            size = segment.log.size() + segment.index.size()
            self._disk.remove(index_name(segment.number))
            self._disk.remove(log_name(segment.number))
            self._disk.sync_names()
            return size

        async with self._contents.naming:
            self._contents.replace_segment(segment, None)
            size = await self._in_thread(remove)
        log.info("%s removed: nothing in it is live", log_name(segment.number))
        return size

    async def _consider(self, segment: Segment) -> int:
        """Rewrite a segment if that is worth it; returns the freed bytes."""
        live = await self._live_records(segment)
        seen = self._seen.get(segment.number)
        same = seen is not None and seen.salt == segment.salt
        if seen is not None and same and live > seen.live_records * _DEAD_SHARE:
            return 0
        self._seen[segment.number] = _Seen(segment.salt, live)
        found = Examined()
        await self._paced(examine(segment, self._contents.log_start, found))
        if not found.live:  # its last records died meanwhile; no inner segment may be empty
            return await self._remove(segment)
        return await self._rewrite(segment, found) if _worth_it(segment, found) else 0

    async def _rewrite(self, segment: Segment, found: Examined) -> int:
        begun = time.monotonic()
        work = SegmentRewrite(self._disk, segment, found)
        try:
            await self._paced(work.copy())
            await self._make_droppable(segment)
        except Exception:
            await self._in_thread(work.abandon)
            raise
        async with self._contents.naming:
            new = await self._in_thread(work.publish)
            self._contents.replace_segment(segment, new)
        self._seen[new.number] = _Seen(new.salt, await self._live_records(new))
        freed = segment.end + segment.index_end - new.end - new.index_end
        took = time.monotonic() - begun
        log.info(
            "%s rewritten in %.1f s: %d partitions, %d bytes freed",
            log_name(segment.number), took, len(found.live), freed,
        )  # fmt: skip
        return freed

    async def _paced(self, steps: Steps) -> None:
        await self._in_thread(lambda: self._pace(steps))

    def _pace(self, steps: Steps) -> None:
        """Run the steps in the thread, with pauses.

        Raises:
            _StoppedError: the broker stops; the steps are incomplete.
        """
        used = time.thread_time()
        for size in steps:
            if self._stop.is_set():
                raise _StoppedError
            for _ in range(_STEPS_BACK):
                if not self._busy():
                    break
                time.sleep(_STEP_BACK_SECONDS)
            now = time.thread_time()
            by_cpu = (now - used) * (1 / _CPU_SHARE - 1)
            time.sleep(max(size / self._policy.bytes_per_second, by_cpu))
            used = now

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)


def _worth_it(segment: Segment, found: Examined) -> bool:
    held = segment.end - FILE_HEADER_SIZE
    dead = found.live_bytes < held * (1 - _DEAD_SHARE)
    mixed = len(found.live) > 1 and found.bytes_per_run < _FINE_BYTES
    return dead or (segment.kind == APPENDED and mixed)
