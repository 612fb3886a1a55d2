"""Gives back the space of what is dead, and groups sealed segments, in the background.

A segment with nothing live in it is removed. One that is mostly dead, or in which virtual topics
are finely mixed, is rewritten. All that is read or written for it is held below a rate; the thread
that does it sleeps for longer than it computes, and steps back while appends wait.
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
_FINE_BYTES = 256 << 10  # a reader that finds this much side by side hardly seeks
_CPU_SHARE = 0.25
_STEP_BACK_SECONDS = 0.001
_STEPS_BACK = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RewritePolicy:
    """What is done, and how fast.

    Attributes:
        rewrite: without it only segments with nothing live in them are removed.
        bytes_per_second: read and written, together.
    """

    rewrite: bool = True
    bytes_per_second: int = 32 << 20


class _Seen(NamedTuple):
    """What was found when a segment was last looked at."""

    salt: int
    live_records: int


class _StoppedError(Exception):
    """The broker stops."""


class RewriteTask:
    """One log's sealed segments, one at a time."""

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
        """Needs some of the log's own methods.

        `save` takes a checkpoint, `make_durable` syncs the log, `both_cover` is the id below which
        both checkpoints cover everything, `busy` is whether appends wait, `deletions` is another
        number when something has died.
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
        self._saved: int | None = None  # as of how many deletions a checkpoint was taken
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wal-rewrite")

    async def run(self) -> None:
        """Look whenever something has changed; ends only when it is cancelled."""
        last: tuple[int, int] | None = None
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now = (len(self._contents.segments), self._deletions())
            if now == last:
                continue
            try:
                await self.run_once()
                last = now
            except Exception:  # a mistake of ours must not let the log grow for ever
                log.exception("segments cannot be rewritten now; the next turn tries again")

    async def close(self) -> None:
        """Leave what is under way undone. Call it when `run` has been cancelled."""
        self._stop.set()
        await asyncio.to_thread(self._thread.shutdown)

    async def run_once(self) -> int:
        """Do what there is to do for every sealed segment; returns how many bytes were freed."""
        freed = 0
        self._saved = None
        sealed = self._contents.segments[:-1]  # nothing is appended to them any more
        for segment in sealed:
            if not await self._live_records(segment):
                freed += await self._or_left(segment, self._remove(segment))
        known = {segment.number for segment in self._contents.segments}
        self._contents.quarantine.drop_dead(known, self._contents.partitions)
        if self._policy.rewrite:
            damaged = {damage.segment for damage in self._contents.quarantine.damages}
            for segment in sealed:
                if segment in self._contents.segments and segment.number not in damaged:
                    freed += await self._or_left(segment, self._consider(segment))
        known = {segment.number for segment in self._contents.segments}
        self._seen = {number: seen for number, seen in self._seen.items() if number in known}
        return freed

    async def _or_left(self, segment: Segment, work: Coroutine[Any, Any, int]) -> int:
        try:
            return await work
        except (OSError, Malformed) as e:
            log.warning("%s is left as it is: %s", log_name(segment.number), e)
            return 0

    async def _let_go(self, segment: Segment) -> None:
        """Make sure that nobody needs what is about to be dropped.

        A checkpoint has what is known of idempotent producers from it, and their batches may be
        dead long before they are; so has the one before, which counts if the newest is damaged.
        And what is dead in memory must be dead on disk, too.

        Raises:
            OSError: that cannot be.
        """
        deletions = self._deletions()
        if self._saved != deletions:  # the registry's own log start is in no event
            await self._save()
            self._saved = deletions
        if self._both_cover() < segment.next_id:
            await self._save()
        await self._make_durable()

    async def _live_records(self, segment: Segment) -> int:
        await self._contents.live.settle()
        return self._contents.live.count(segment.number)

    async def _remove(self, segment: Segment) -> int:
        """The index goes first: a log without one is whole, an index without a log is a loss."""
        await self._let_go(segment)

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
        """Rewrite a segment if that is worth it; returns how many bytes that has freed."""
        live = await self._live_records(segment)
        seen = self._seen.get(segment.number)
        same = seen is not None and seen.salt == segment.salt
        if seen is not None and same and live > seen.live_records * _DEAD_SHARE:
            return 0
        self._seen[segment.number] = _Seen(segment.salt, live)
        found = Examined()
        await self._paced(examine(segment, self._contents.log_start, found))
        if not found.live:  # it has died meanwhile; a segment in the middle is never empty
            return await self._remove(segment)
        return await self._rewrite(segment, found) if _worth_it(segment, found) else 0

    async def _rewrite(self, segment: Segment, found: Examined) -> int:
        begun = time.monotonic()
        work = SegmentRewrite(self._disk, segment, found)
        try:
            await self._paced(work.copy())
            await self._let_go(segment)
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
            "%s rewritten in %.1f s: %d virtual topics, %d bytes freed",
            log_name(segment.number), took, len(found.live), freed,
        )  # fmt: skip
        return freed

    async def _paced(self, steps: Steps) -> None:
        await self._in_thread(lambda: self._pace(steps))

    def _pace(self, steps: Steps) -> None:
        """Take the steps, in the thread, with pauses.

        Raises:
            _StoppedError: the broker stops; the steps are not finished.
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
