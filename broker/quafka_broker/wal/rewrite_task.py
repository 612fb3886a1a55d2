"""Frees dead records and groups sealed segments, in the background.

A segment without live records is removed. A segment that is mostly dead, or in which partitions are
finely interleaved, is rewritten. The rate of reads and writes for this is limited. The thread
sleeps for longer than it computes, and yields to waiting appends.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from quafka_broker.partitions.gaps import Gaps
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.recount import recount
from quafka_broker.wal.rewrite_segment import Examined, SegmentRewrite, examine
from quafka_broker.wal.runs import batches_between
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_broker.wal.segment_edit import BatchEditor, SegmentEdit
from quafka_broker.wal.segment_entries import Steps
from quafka_loop import clock, threads
from quafka_loop.slices import Slices
from quafka_proto.errors import Malformed
from quafka_proto.log_format import APPENDED, FILE_HEADER_SIZE, IndexRow

log = logging.getLogger("quafka.broker.wal.rewrite")

_POLL_SECONDS = 10.0
_DEAD_SHARE = 0.5
_FINE_BYTES = 256 << 10  # with contiguous runs of this size a reader hardly seeks
_CPU_SHARE = 0.25
_STEP_BACK_SECONDS = 0.001
_STEPS_BACK = 50
_CATCH_UP_SECONDS = 0.05
"""How far the thread may fall behind its pace and then catch up, without pauses."""
_PARTITIONS_PER_SLICE = 50

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


class Compacted(NamedTuple):
    """Bytes of the batches that compaction has examined, before and after."""

    before: int
    after: int


Changing = Callable[[Collection[PartitionId]], AbstractAsyncContextManager[None]]
"""Entered while batches of these partitions are removed."""


class StoppedError(Exception):
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
        self._one = asyncio.Lock()  # one segment is removed or rewritten at a time
        self._unreadable: set[int] = set()  # segments that compaction could not read
        self._stop = threads.Event()
        self._thread = threads.ThreadPoolExecutor(1, thread_name_prefix="wal-rewrite")

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
            except OSError as e:
                log.warning("segments cannot be rewritten now; the next run tries again: %s", e)
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
        sealed = self._contents.segments[:-1]  # they get no more appends
        for segment in sealed:
            if segment in self._contents.segments and not await self._live_records(segment):
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
            async with self._one:
                return await work
        except (OSError, Malformed) as e:
            log.warning("%s is left as it is: %s", log_name(segment.number), e)
            return 0

    async def _make_droppable(self, segment: Segment) -> None:
        """Ensure that no start needs the records to be dropped.

        Both checkpoints must have the idempotent producers that wrote them: producers are
        remembered longer than their batches, and the older checkpoint is used if the newest is
        damaged. And records that are dead in memory must also be dead on disk.

        Raises:
            OSError: a checkpoint or a sync failed.
        """
        deletions = self._deletions()
        if self._saved != deletions:  # no event records the registry's own log start
            await self._save()
            self._saved = deletions
        if self._both_cover() < segment.next_id:
            await self._save()
        await self._make_durable()

    async def _live_records(self, segment: Segment) -> int:
        await self._contents.live.settle()
        return self._contents.live.count(segment.number)

    async def _remove(self, segment: Segment) -> int:
        """Remove a segment, index first: a log without an index is complete, but an index without
        its log would look like damage."""
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
        """Rewrite a segment if it is worth it; returns the freed bytes."""
        live = await self._live_records(segment)
        seen = self._seen.get(segment.number)
        same = seen is not None and seen.salt == segment.salt
        if seen is not None and same and live > seen.live_records * _DEAD_SHARE:
            return 0
        self._seen[segment.number] = _Seen(segment.salt, live)
        found = Examined()
        await self.paced(examine(segment, self._contents.log_start, found))
        if not found.live:  # its last records have died; no inner segment may be empty
            return await self._remove(segment)
        return await self._rewrite(segment, found) if _worth_it(segment, found) else 0

    # --- compaction -------------------------------------------------------------------------

    async def compact(self, editor: BatchEditor, changing: Changing) -> Compacted:
        """Rewrite the sealed segments, oldest first, by an editor's decisions about their batches.

        Segments without changed batches are kept. `changing` is entered around each change of the
        log; if it raises, the segment is kept.

        Raises:
            OSError, Malformed: a segment could not be rewritten. Earlier ones have been, later ones
                have not.
            StoppedError: the broker stops; otherwise the same.
        """
        before = after = 0
        for number in await self._concerned(editor):
            async with self._one:
                segment = next((s for s in self._contents.segments if s.number == number), None)
                if segment is None:
                    continue
                if self._contents.quarantine.is_in(number):
                    raise Malformed(f"{log_name(number)} is damaged")
                try:
                    done = await self._compact(segment, editor, changing)
                except Malformed:
                    self._unreadable.add(number)
                    raise
            before, after = before + done.before, after + done.after
        return Compacted(before, after)

    def sealed_with(self, partition: Partition) -> dict[int, int]:
        """The sealed segments that have entries of a partition: their numbers, and their bytes.

        Takes microseconds for each segment.
        """
        found: dict[int, int] = {}
        segments, ids = self._contents.segments[:-1], partition.ids
        at, next_id = 0, ids.next_from(0)
        while next_id is not None and at < len(segments):
            at = bisect_right(segments, next_id, lo=at, key=lambda s: s.next_id)
            if at < len(segments):
                segment = segments[at]
                if not partition.gaps.covers(*partition.offsets_between(next_id, segment.next_id)):
                    found[segment.number] = segment.end
                next_id = ids.next_from(segment.next_id)
        return found

    def is_damaged(self, partition: Partition) -> bool:
        """Whether a segment with entries of the partition is damaged, so that it is not compacted.

        Otherwise a tombstone could be removed before the records that it deletes.
        """
        damaged = {damage.segment for damage in self._contents.quarantine.damages}
        damaged |= self._unreadable
        return bool(damaged and damaged & self.sealed_with(partition).keys())

    def batches(
        self, partition: Partition, start: int, end: int
    ) -> Iterator[tuple[IndexRow, memoryview]]:
        """The batches with base offsets in [start, end), for `paced`; see `batches_between`."""
        return batches_between(self._contents, partition, start, end)

    async def _concerned(self, editor: BatchEditor) -> list[int]:
        """The numbers of the sealed segments that have ids of the editor's partitions."""
        numbers: set[int] = set()
        slices = Slices(_PARTITIONS_PER_SLICE)
        for id_ in list(editor.partitions):
            partition = self._contents.partitions.get(id_)
            if partition is not None:
                numbers |= self.sealed_with(partition).keys()
            await slices.done()
        return sorted(numbers)

    async def _compact(
        self, segment: Segment, editor: BatchEditor, changing: Changing
    ) -> Compacted:
        found = Examined()
        await self.paced(examine(segment, self._contents.log_start, found))
        edit = SegmentEdit(segment, found, editor)
        await self.paced(edit.decide())
        if not edit.partitions:
            return Compacted(edit.bytes, edit.bytes)
        freed = await self._rewrite(segment, found, edit, changing)
        return Compacted(edit.bytes, max(0, edit.bytes - freed))

    async def paced(self, steps: Steps) -> None:
        """Run steps in the thread, at the pace of rewrites.

        Raises:
            StoppedError: the broker stops; the steps are incomplete.
        """
        await self._in_thread(lambda: self._pace(steps))

    # --- one segment ------------------------------------------------------------------------

    async def _rewrite(
        self,
        segment: Segment,
        found: Examined,
        edit: SegmentEdit | None = None,
        changing: Changing = lambda _partitions: nullcontext(),
    ) -> int:
        begun = clock.monotonic()
        work = SegmentRewrite(self._disk, segment, found, edit)
        partitions = edit.partitions if edit is not None else ()
        try:
            await self.paced(work.copy())
            await self._make_droppable(segment)
            async with changing(partitions), self._contents.naming:
                gaps = await self._in_thread(partial(self._joined_gaps, edit))
                new = await self._in_thread(work.publish)
                for partition, joined, markers in gaps:
                    partition.take_gaps(joined, markers)
                self._contents.replace_segment(segment, new)
        except Exception:
            await self._in_thread(work.abandon)
            raise
        await recount(self._contents, segment, partitions, self.paced)
        self._seen[new.number] = _Seen(new.salt, await self._live_records(new))
        freed = segment.end + segment.index_end - new.end - new.index_end
        took = clock.monotonic() - begun
        log.info(
            "%s rewritten in %.1f s: %d partitions, %d bytes freed",
            log_name(segment.number), took, len(found.live), freed,
        )  # fmt: skip
        return freed

    def _pace(self, steps: Steps) -> None:
        """Run the steps in the thread, with pauses.

        The pace includes the time that steps and late wake-ups take.

        Raises:
            StoppedError: the broker stops; the steps are incomplete.
        """
        used, due = clock.thread_time(), clock.monotonic()
        for size in steps:
            if self._stop.is_set():
                raise StoppedError
            for _ in range(_STEPS_BACK):
                if not self._busy():
                    break
                clock.sleep(_STEP_BACK_SECONDS)
            before, used = used, clock.thread_time()
            due += max(size / self._policy.bytes_per_second, (used - before) / _CPU_SHARE)
            ahead = due - clock.monotonic()
            if ahead > 0:
                clock.sleep(ahead)
            due -= min(0.0, ahead + _CATCH_UP_SECONDS)

    def _joined_gaps(self, edit: SegmentEdit | None) -> list[tuple[Partition, Gaps, list[int]]]:
        """The new gaps of each partition, and the markers in them."""
        removed = edit.removed if edit is not None else {}
        found: list[tuple[Partition, Gaps, list[int]]] = []
        for id_, ranges in removed.items():
            partition = self._contents.partitions.get(id_)
            if partition is not None:
                gaps = partition.gaps.joined(ranges)
                found.append((partition, gaps, partition.markers_in(gaps)))
        return found

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)


def _worth_it(segment: Segment, found: Examined) -> bool:
    held = segment.end - FILE_HEADER_SIZE
    dead = found.live_bytes < held * (1 - _DEAD_SHARE)
    mixed = len(found.live) > 1 and found.bytes_per_run < _FINE_BYTES
    return dead or (segment.kind == APPENDED and mixed)
