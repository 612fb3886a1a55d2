"""The write-ahead log: one for all orgs and topics.

`queue.append` promises: when its future has a result, the batches are in the log, durable according
to `wal.fsync`, and readable. Batches appended to one partition keep their order. Ids and offsets
are assigned only when a batch is written, so a failed write does not affect later ones.

Every batch that a read returns has been verified. Records lost to damage are reported as lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

from quafka_broker.partitions.leader_epochs import LeaderEpochs
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.acceptance import Acceptance
from quafka_broker.wal.active_segment import ActiveSegment
from quafka_broker.wal.append_queue import AppendQueue, Share
from quafka_broker.wal.chain_durability import ChainDurability, ChainLink
from quafka_broker.wal.checkpoint_schedule import CheckpointSchedule, uncovered_bytes
from quafka_broker.wal.checkpoint_task import CheckpointSections, CheckpointTask
from quafka_broker.wal.commit_group import MAX_APPENDS, WriterStats
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.cut import LogCut, SegmentCut, cut_contents, cut_segments
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.durability import Durability, FsyncDurability
from quafka_broker.wal.epoch_file import EpochFile
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.index_rebuild import IndexRebuilds
from quafka_broker.wal.opening import open_contents
from quafka_broker.wal.partitions import LogPartitions
from quafka_broker.wal.publisher import Publisher
from quafka_broker.wal.quarantine import SegmentDamage
from quafka_broker.wal.reader import Reader
from quafka_broker.wal.repair import repair
from quafka_broker.wal.reserve import Reserve
from quafka_broker.wal.rewrite_task import RewritePolicy, RewriteTask
from quafka_broker.wal.verification import LogVerification
from quafka_broker.wal.writer import Writer
from quafka_loop import clock

log = logging.getLogger("quafka.broker.wal")

CHECKPOINT_BYTES = 256 << 20
_REPLAYED_BYTES = 1 << 20
"""Bytes that a start replays faster than a checkpoint is written to an object store."""

T = TypeVar("T")


class Health(NamedTuple):
    """Whether the log takes writes, and how much of it is damaged.

    Attributes:
        failed: why the log takes no more writes until the broker is restarted; None while it takes
            them.
        refusing: why the last write was refused; None if it was not.
        damages: the number of quarantined pieces.
    """

    failed: str | None
    refusing: str | None
    damages: int


class LogFigures(NamedTuple):
    """The size of the log, and how much of it is written and covered by checkpoints.

    Attributes:
        unsaved_bytes: bytes in the log after the last checkpoint.
        checkpoint_at: `time.monotonic()` of the last checkpoint; 0: none since the start.
    """

    segments: int
    bytes: int
    pending_bytes: int
    unsaved_bytes: int
    checkpoint_at: float
    checkpoint_failures: int
    reserve_held: bool


class _Parts(NamedTuple):
    """The parts of an open log that change its files."""

    active: ActiveSegment
    writer: Writer
    checkpoints: CheckpointTask
    schedule: CheckpointSchedule


class Log:
    """Segments and partitions with one writer.

    Attributes:
        queue: takes appends.
        partitions: the partitions.
        reader: reads them.
        verification: verifies segments.
        sections: the sections of other parts in checkpoints.
        stats: counters of writes since the start.
    """

    def __init__(
        self,
        disk: Disk,
        fsync: FsyncPolicy,
        segment_bytes: int,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        reserve_bytes: int = 0,
        chain: ChainLink | None = None,
    ) -> None:
        """With a `chain`, the chain instead of `fsync` makes appends durable."""
        self._disk = disk
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._checkpoint_bytes = checkpoint_bytes
        self._reserve = Reserve(disk, reserve_bytes)
        self._chain = chain
        self._epoch_file = EpochFile(
            disk,
            self._reserve,
            syncs_first=fsync.every_commit or chain is not None,
            takeover=None if chain is None else chain.chain.epoch,
        )
        self._contents = Contents(Producers())
        self.partitions = LogPartitions(self._contents)
        self.sections = CheckpointSections()
        self._acceptance = Acceptance()
        # In a chain, commits take long: an org may have a whole object pending.
        share = Share() if chain is None else Share(chain.policy.size, MAX_APPENDS)
        self.queue = AppendQueue(self._acceptance, share)
        self.stats = WriterStats()
        self._rebuilds = IndexRebuilds(disk, self._contents, self._run_exclusively)
        self.reader = Reader(self._contents, self._rebuilds)
        self.verification = LogVerification(self._contents, self._rebuilds)
        self._parts: _Parts | None = None
        self._started = self._closed = False

    # --- life -------------------------------------------------------------------------------

    def open(
        self,
        producers: Producers,
        on_commit: Callable[[Set[PartitionId]], None] = lambda _grown: None,
    ) -> None:
        """Recover the log: partitions, and the state of producers. Blocks.

        `on_commit` is called with the partitions that have grown, after their appends are answered.

        Raises:
            DamagedLogError: the log contradicts itself.
            OSError: a file cannot be read, or cannot be repaired.
        """
        contents = self._contents
        contents.producers = producers
        found = open_contents(self._disk, contents, self._epoch_file, self._reserve)
        for segment in contents.segments:
            segment.unverified_to = segment.end
        fsync = self._fsync if self._chain is None else None
        active = ActiveSegment(self._disk, contents, self._acceptance, self.stats, fsync)
        task = CheckpointTask(
            self._disk, contents, self._reserve, found, self.sections, active.make_durable
        )
        schedule = CheckpointSchedule(
            task, self.stats, self._acceptance, self._checkpoint_bytes,
            uncovered_bytes(found.checkpoint, contents.segments),
        )  # fmt: skip
        queue, acceptance, size = self.queue, self._acceptance, self._segment_bytes

        def committed(grown: Set[PartitionId]) -> None:
            on_commit(grown)
            schedule.begin_if_due()

        publisher = Publisher(contents, queue, acceptance, self.stats, committed)
        durability = self._durability(active, publisher)
        writer = Writer(active, queue, publisher, durability, acceptance, self._reserve, size)
        self._parts = _Parts(active, writer, task, schedule)

    def _durability(self, active: ActiveSegment, publisher: Publisher) -> Durability:
        size = self._segment_bytes
        if self._chain is not None:
            return ChainDurability(
                active, self.queue, publisher, self._acceptance, size, self._chain
            )
        return FsyncDurability(active, publisher, size, self._fsync.interval)

    def give_up(self, reason: str) -> None:
        """Refuse appends, and answer none under way, because another broker has the log."""
        if self._parts is not None:
            self._parts.writer.give_up(reason)

    def start(self) -> None:
        """Begin to write."""
        self._open.writer.start()
        self._started = True

    def settle(self, live: Mapping[PartitionId, int | None]) -> None:
        """Keep only these partitions, from these log starts on (None: unchanged).

        Called once, when the registry has been read: only then are the records lost to damage
        known. No checkpoint is taken before.

        Raises:
            DamagedLogError: missing records were never in the log.
        """
        self._contents.settle(live)
        self._open.schedule.enable()

    async def close(self) -> None:
        """Write, sync and checkpoint everything pending. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        parts = self._parts
        if parts is not None:
            parts.schedule.stop_timer()
        await self.verification.close()
        await self._rebuilds.close()
        if parts is not None:
            if self._started:
                await parts.writer.close()
            await parts.schedule.close(_REPLAYED_BYTES if self._chain is not None else 0)
            if self.failure is None:
                self._record_clean_end()
            parts.active.release()
            parts.checkpoints.close()
        self.reader.close()
        while self._contents.segments:
            self._contents.segments.pop().close()

    def _record_clean_end(self) -> None:
        try:
            self._epoch_file.closed()
        except OSError as e:
            log.warning("the next start begins a new leader epoch: %s", e.strerror or e)

    async def repair(self, found: Sequence[SegmentDamage] = ()) -> list[int]:
        """Repair all damage, including what a verification has `found`.

        Called instead of `close`, on a settled log that nothing else uses. Returns the numbers of
        the segments that were rewritten.

        Raises:
            OSError: the repair is incomplete; the finished segments are intact.
        """
        quarantine = self._contents.quarantine
        known = [(damage.segment, damage.start) for damage in quarantine.damages]
        for damage in found:
            if (damage.segment, damage.start) not in known:
                quarantine.add(damage)
        quarantine.settle(self._contents.partitions.values())
        self._open.schedule.disable()  # the contents do not describe the repaired log
        if quarantine.lost():
            self._epoch_file.gave_up_records()
        try:
            return await asyncio.to_thread(repair, self._disk, self._contents)
        finally:
            await self.close()

    def rewrite_task(self, policy: RewritePolicy, deletions: Callable[[], int]) -> RewriteTask:
        """Frees dead records of this log and groups the others. `deletions` counts deletions."""
        active, writer, checkpoints, _ = self._open
        return RewriteTask(
            self._disk, self._contents, policy, self.checkpoint, active.make_durable,
            lambda: checkpoints.both_cover, lambda: writer.is_busy, deletions,
        )  # fmt: skip

    # --- figures ----------------------------------------------------------------------------

    def health(self) -> Health:
        """Whether the log takes writes, and how much of it is damaged."""
        damages = len(self._contents.quarantine.damages)
        return Health(self.failure, self._acceptance.refusing, damages)

    def figures(self) -> LogFigures:
        """The size of the log, and how much of it is written and covered by checkpoints."""
        segments = self._contents.segments
        checkpoints = self._open.schedule.figures()
        return LogFigures(
            len(segments),
            sum(segment.end for segment in segments),
            self.queue.bytes,
            checkpoints.uncovered_bytes,
            checkpoints.taken_at,
            checkpoints.failures,
            self._reserve.held,
        )

    @property
    def failure(self) -> str | None:
        """Why the log takes no more writes; None while it does."""
        return self._acceptance.failure

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of all partitions."""
        return self._contents.epochs

    @property
    def began_epoch(self) -> bool:
        """Whether opening began a new leader epoch, since the log may have been longer before."""
        return self._epoch_file.began_new

    @property
    def damages(self) -> Sequence[SegmentDamage]:
        """The quarantined damage."""
        return self._contents.quarantine.damages

    @property
    def next_id(self) -> int:
        """The global id of the next record."""
        return self._contents.next_id

    @property
    def sealed_id(self) -> int:
        """The first global id in the active segment."""
        first = self._contents.segments[-1].first_id if self._contents.segments else None
        return self._contents.next_id if first is None else first

    async def seal(self) -> None:
        """Begin a new segment, so that everything written so far can be compacted.

        Raises:
            OSError: this is impossible now.
        """
        await self._open.writer.seal()

    # --- cut --------------------------------------------------------------------------------

    async def cut(self, also: Callable[[], T], keep: Callable[[LogCut, T], None]) -> LogCut:
        """Take a cut of the log, and the result of `also` at the same instant.

        Both are durable on return. `keep` is called in a thread while no segment file loses its
        name, so that it may link to the files.

        Raises:
            OSError: the log has failed, or `keep` has.
        """
        async with self._contents.naming:
            begun = clock.perf_counter()
            cut, found = cut_contents(self._contents), also()
            took = clock.perf_counter() - begun
            log.info("a cut at id %d held up appends for %.2f ms", cut.end_id, took * 1000)
            await self._open.active.make_log_durable()
            await asyncio.to_thread(keep, cut, found)
        return cut

    def segments(self) -> list[SegmentCut]:
        """The segments that have entries."""
        return cut_segments(self._contents.segments)

    # --- checkpoints ------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Take a checkpoint now.

        Raises:
            OSError: it could not be written; the older one remains valid.
        """
        await self._open.schedule.now()

    def checkpoint_soon(self) -> None:
        """Take a checkpoint in a few seconds; until then, new state has no second copy.

        It waits longer if checkpoints take long, so that they use a small share of the time.
        """
        self._open.schedule.soon()

    async def _run_exclusively(self, job: Callable[[], bool]) -> bool:
        return await self._open.active.run(job)

    @property
    def _open(self) -> _Parts:
        assert self._parts is not None, "the log is not open"
        return self._parts
