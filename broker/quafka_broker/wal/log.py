"""The write-ahead log: one for all tenants and topics.

`append` promises: when it returns, the batches are in the log, durable as `wal.fsync` says, and
readable. Batches appended to one virtual topic keep their order. Until then nothing is assigned:
a failed write disturbs no later one.

Nothing that is handed out was not checked: what damage has taken is said to be lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from quafka_broker.partitions.errors import CorruptError, StorageError
from quafka_broker.partitions.leader_epochs import LeaderEpochs
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.checkpoint_file import Checkpoint, load_newest
from quafka_broker.wal.checkpoint_task import CheckpointTask, Kept
from quafka_broker.wal.commit_group import WriteTimes
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.epoch_file import EpochFile, Evidence
from quafka_broker.wal.index_rebuild import rebuild_index
from quafka_broker.wal.quarantine import Damage
from quafka_broker.wal.reader import Reader, ReadTimes, Room
from quafka_broker.wal.recovery import Recovered, StaleCheckpointError, recover
from quafka_broker.wal.repair import repair
from quafka_broker.wal.reserve import Reserve
from quafka_broker.wal.rewrite_task import RewritePolicy, RewriteTask
from quafka_broker.wal.segment import BadIndexError, Segment, index_name
from quafka_broker.wal.writer import FsyncPolicy, Writer, WriterStats
from quafka_proto.errors import Malformed
from quafka_proto.log_format import REWRITTEN, IndexRow
from quafka_proto.records import BatchHeader
from quafka_telemetry.slices import Slices

log = logging.getLogger("quafka.broker.wal")

CHECKPOINT_BYTES = 256 << 20
_SOON_SECONDS = 5.0
_SOON_SHARE = 20
_LOOKED_UP_PER_SLICE = 100

_MANY = 1 << 62

T = TypeVar("T")


class Health(NamedTuple):
    """How the log is.

    Attributes:
        failed: why it takes no more writes until the broker is started again; None: it does.
        refusing: why the last write was refused; None after one that was not.
        damages: how many pieces of it are quarantined.
    """

    failed: str | None
    refusing: str | None
    damages: int


class SegmentCut(NamedTuple):
    """A segment up to `end`, with `rows` index rows; nothing is appended to a sealed one."""

    number: int
    salt: int
    kind: int
    end: int
    rows: int
    sealed: bool


class LogCut(NamedTuple):
    """The log at one instant: a prefix of it, which is durable.

    Attributes:
        end_id: every record's global id is below it.
        topics: with log start and high watermark.
        lost: ranges of offsets that damage has cost.
    """

    end_id: int
    segments: list[SegmentCut]
    partitions: list[tuple[PartitionId, int, int]]
    lost: dict[PartitionId, list[tuple[int, int]]]


class Figures(NamedTuple):
    """How large the log is, and how far it is written and saved.

    Attributes:
        checkpoint_at: `time.monotonic()` of the last checkpoint; 0 before this process took one.
        unsaved_bytes: in the log behind the last checkpoint.
    """

    segments: int
    bytes: int
    pending_bytes: int
    unsaved_bytes: int
    checkpoint_at: float
    checkpoint_failures: int
    reserve_held: bool


class Log:
    """Segments, virtual topics, and the one writer."""

    def __init__(
        self,
        disk: Disk,
        fsync: FsyncPolicy,
        segment_bytes: int,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        reserve_bytes: int = 0,
    ) -> None:
        self._disk = disk
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._checkpoint_bytes = checkpoint_bytes
        self._reserve = Reserve(disk, reserve_bytes)
        self._epoch_file = EpochFile(disk, self._reserve, syncs_first=fsync.every_commit)
        self._contents = Contents(Producers())
        self._reader = Reader(self._contents)
        self._writer: Writer | None = None
        self._checkpointer: CheckpointTask | None = None
        self._checkpointing: asyncio.Task[None] | None = None
        self._settled = False
        self._started = self._closed = False
        self._unsaved = 0  # bytes in the log behind the last checkpoint
        self._saved_at = 0  # of the writer's count of bytes, at the last checkpoint
        self._checkpoint_at = 0.0
        self._behind = 0  # with what was written since the start: behind the last checkpoint
        self._checkpoint_failures = 0
        self._checkpoint_seconds = 0.0  # how long the last one took
        self._mending: dict[tuple[int, int], asyncio.Task[bool]] = {}
        self._soon: asyncio.TimerHandle | None = None
        self.on_commit: Callable[[set[PartitionId]], None] = lambda _partitions: None
        """Called with the virtual topics that have grown."""

    # --- life -------------------------------------------------------------------------------

    def open(self, producers: Producers) -> None:
        """Recover the log: virtual topics, and what is known of producers. Blocks.

        Raises:
            DamagedLogError: it contradicts itself.
            OSError: a file cannot be read or put right.
        """
        self._contents.producers = producers
        found = load_newest(self._disk)
        checkpoint = found.checkpoint
        recovered = self._recover(checkpoint)
        segments = self._contents.segments
        producers.evictions_unknown = checkpoint is None and _has_freed(segments)
        if not segments or segments[-1].number != recovered.active:
            self._contents.append_segment(Segment.create(self._disk, recovered.active))
            segments = self._contents.segments
        # After recovery everything that is left has been synced or verified; sync once more, so
        # that what is served from now on cannot be lost any more.
        segments[-1].sync()
        self._reserve.hold()
        self._begin_epoch(recovered, checkpoint)
        self._unsaved = self._behind = _bytes_behind(checkpoint, segments)
        writer = self._writer = Writer(
            self._disk, self._contents, self._reserve, self._fsync, self._segment_bytes
        )
        writer.on_commit = self._committed
        self._checkpointer = CheckpointTask(
            self._disk, self._contents, self._reserve, found, writer.make_durable
        )

    def _begin_epoch(self, recovered: Recovered, checkpoint: Checkpoint | None) -> None:
        epochs, first = self._contents.epochs, self._contents.segments[0].first_id
        known = checkpoint is not None and checkpoint.epochs is not None
        evidence = Evidence(
            epochs.current, known, recovered.empty, recovered.damaged, recovered.torn
        )
        epochs.begin_epoch(self._epoch_file.begin(evidence), self._contents.next_id)
        epochs.drop_below(self._contents.next_id if first is None else first)

    def _recover(self, checkpoint: Checkpoint | None) -> Recovered:
        """Fill the contents."""
        if checkpoint is None:
            return recover(self._disk, None, self._contents)
        self._contents.load_checkpoint(checkpoint)
        try:
            return recover(self._disk, checkpoint, self._contents)
        except StaleCheckpointError as e:
            log.warning("%s: reading all of the index", e)
        self._contents.reset()
        recovered = recover(
            self._disk, checkpoint._replace(segments=[], partitions=[], next_id=0), self._contents
        )
        producers = self._contents.producers
        for partition in checkpoint.partitions:
            producers.load_unknown(partition.id, partition.producers)
        return recovered

    def start(self) -> None:
        """Begin to write."""
        self._open_writer.start()
        self._started = True

    def settle(self, live: Mapping[PartitionId, int | None]) -> None:
        """Keep these virtual topics only, from these log starts on (None: as it is).

        Called once, when the registry has been read. Only now it is known which records damage
        has cost; and there are no checkpoints before.

        Raises:
            DamagedLogError: records are missing that never were in the log.
        """
        self._contents.settle(live)
        self._settled = True
        self._checkpoint_if_due()

    async def close(self) -> None:
        """Write, sync and checkpoint what waits. A second time it does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._soon is not None:
            self._soon.cancel()
        await asyncio.gather(*self._mending.values(), return_exceptions=True)
        if self._writer is not None:
            if self._started:
                await self._writer.close()
            if self._checkpointing is not None:
                await asyncio.wait([self._checkpointing])
            if self._settled and self._writer.failure is None:
                await self._save()
            if self._writer.failure is None:
                self._note_end()
            self._writer.release()
        if self._checkpointer is not None:
            self._checkpointer.close()
        self._reader.close()
        while self._contents.segments:
            self._contents.segments.pop().close()

    def _note_end(self) -> None:
        try:
            self._epoch_file.closed()
        except OSError as e:
            log.warning("the next start begins a new leader epoch: %s", e.strerror or e)

    async def repair(self, found: Sequence[Damage] = ()) -> list[int]:
        """Settle all damage, also what was `found` by reading; the segments written anew.

        Called instead of `close`, on a settled log that nobody uses.

        Raises:
            OSError: not all of it was done; what was is whole.
        """
        quarantine = self._contents.quarantine
        known = [(damage.segment, damage.start) for damage in quarantine.damages]
        for damage in found:
            if (damage.segment, damage.start) not in known:
                quarantine.add(damage)
        quarantine.settle(self._contents.partitions.values())
        self._settled = False  # no checkpoint of what will not be any more
        if quarantine.lost():
            self._epoch_file.gave_up_records()
        try:
            return await asyncio.to_thread(repair, self._disk, self._contents)
        finally:
            await self.close()

    def rewrite_task(self, policy: RewritePolicy, deletions: Callable[[], int]) -> RewriteTask:
        """Frees what is dead in this log, and groups the rest. `deletions` counts them."""
        writer, checkpointer = self._open_writer, self._checkpointer
        assert checkpointer is not None
        return RewriteTask(
            self._disk, self._contents, policy, self.checkpoint, writer.make_durable,
            lambda: checkpointer.both_cover, lambda: writer.busy, deletions,
        )  # fmt: skip

    def health(self) -> Health:
        """How the log is."""
        writer = self._writer
        return Health(
            self.failure,
            writer.refusing if writer is not None else None,
            len(self._contents.quarantine.damages),
        )

    def figures(self) -> Figures:
        """How large it is, and how far it is written."""
        segments, writer = self._contents.segments, self._open_writer
        return Figures(
            len(segments),
            sum(segment.end for segment in segments),
            writer.pending_bytes,
            self._behind + writer.stats.bytes,
            self._checkpoint_at,
            self._checkpoint_failures,
            self._reserve.held,
        )

    @property
    def failure(self) -> str | None:
        """Why the log takes no more writes; None while it does."""
        return self._writer.failure if self._writer is not None else None

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of all virtual topics."""
        return self._contents.epochs

    @property
    def began_epoch(self) -> bool:
        """Whether a new leader epoch began when it was opened: it may have been longer before."""
        return self._epoch_file.began_new

    @property
    def stats(self) -> WriterStats:
        """What has been written since the start."""
        return self._open_writer.stats

    @property
    def damages(self) -> Sequence[Damage]:
        """What is quarantined."""
        return self._contents.quarantine.damages

    # --- virtual topics ---------------------------------------------------------------------

    def partition(self, partition: PartitionId) -> Partition:
        """The virtual topic; an empty one where nothing was ever appended."""
        found = self._contents.partitions.get(partition)
        if found is None:
            found = self._contents.partitions[partition] = Partition(partition)
        return found

    def offsets(self, partition: PartitionId) -> tuple[int, int]:
        """Log start and high watermark; both 0 where nothing was ever appended."""
        found = self._contents.partitions.get(partition)
        return (0, 0) if found is None else (found.log_start, found.high_watermark)

    def partition_ids(self) -> Sequence[PartitionId]:
        """All virtual topics that are known."""
        return list(self._contents.partitions)

    @property
    def next_id(self) -> int:
        """The global id of the next record."""
        return self._contents.next_id

    def advance_log_start(self, partition: PartitionId, offset: int) -> None:
        """Serve no record below `offset` any more; see `Partition.advance_log_start`."""
        self._contents.advance_log_start(self.partition(partition), offset)

    def drop_partition(self, partition: PartitionId) -> None:
        """A deleted partition's index is not needed any more."""
        self._contents.drop_partition(partition)

    # --- cut --------------------------------------------------------------------------------

    async def cut(self, also: Callable[[], T], keep: Callable[[LogCut, T], None]) -> LogCut:
        """One instant of the log, and what `also` gives at that same instant.

        All of it is durable on return. `keep` is called in a thread while none of the segments'
        files loses its name: it may link to them.

        Raises:
            OSError: the log has failed, or `keep` has.
        """
        async with self._contents.naming:
            begun = time.perf_counter()
            cut, found = self._instant(), also()
            took = time.perf_counter() - begun
            log.info("a cut at id %d held up appends for %.2f ms", cut.end_id, took * 1000)
            await self._open_writer.make_log_durable()
            await asyncio.to_thread(keep, cut, found)
        return cut

    def segments(self) -> list[SegmentCut]:
        """The segments that have entries."""
        segments = self._contents.segments
        last = segments[-1].number
        return [
            SegmentCut(s.number, s.salt, s.kind, s.end, s.entries, s.number != last)
            for s in segments
            if s.entries
        ]

    def _instant(self) -> LogCut:
        """What readers see now. All of an append is visible, or nothing of it."""
        contents, segments = self._contents, self.segments()
        partitions = [(t.id, t.log_start, t.high_watermark) for t in contents.partitions.values()]
        return LogCut(contents.next_id, segments, partitions, contents.quarantine.lost())

    # --- checkpoint -------------------------------------------------------------------------

    def _committed(self, grown: set[PartitionId]) -> None:
        self.on_commit(grown)
        self._checkpoint_if_due()

    def _checkpoint_if_due(self) -> None:
        written = self.stats.bytes
        due = self._unsaved + written - self._saved_at >= self._checkpoint_bytes
        if due and self._settled and self._checkpointing is None and self.failure is None:
            self._begin_checkpoint()

    def _begin_checkpoint(self) -> None:
        self._unsaved, self._saved_at = 0, self.stats.bytes
        self._checkpointing = asyncio.create_task(self._save())
        self._checkpointing.add_done_callback(self._saved)

    def _saved(self, task: asyncio.Task[None]) -> None:
        self._checkpointing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a checkpoint failed", exc_info=error)

    def keep_section(self, section: str, kept: Kept) -> None:
        """Keep something of the caller's in each checkpoint from now on."""
        assert self._checkpointer is not None
        self._checkpointer.keep(section, kept)

    def kept_section(self, section: str) -> list[list[Any]]:
        """The blocks of a section of the checkpoint that this start has read.

        They go into the next checkpoints, too, until `keep` is called for the section.
        """
        assert self._checkpointer is not None
        return self._checkpointer.loaded.get(section, [])

    def checkpoint_soon(self) -> None:
        """Take a checkpoint in a few seconds: what it copies is in one place until then.

        Where checkpoints take long it is later, so that they take a small share of the time.
        """
        if self._soon is None and self._settled and not self._closed:
            delay = max(_SOON_SECONDS, self._checkpoint_seconds * _SOON_SHARE)
            self._soon = asyncio.get_running_loop().call_later(delay, self._save_now)

    def _save_now(self) -> None:
        self._soon = None
        if self._checkpointing is None and self.failure is None:
            self._begin_checkpoint()

    async def checkpoint(self) -> None:
        """Take a checkpoint now.

        Raises:
            OSError: it could not be written; the older one counts.
        """
        while self._checkpointing is not None:
            await asyncio.wait([self._checkpointing])
        task = self._checkpointing = asyncio.create_task(self._take_checkpoint())
        task.add_done_callback(self._saved)
        await asyncio.shield(task)

    async def _take_checkpoint(self) -> None:
        assert self._checkpointer is not None
        written, began = self.stats.bytes, time.monotonic()
        try:
            await self._checkpointer.take()
        except OSError:
            self._checkpoint_failures += 1
            raise
        self._checkpoint_at = time.monotonic()
        self._checkpoint_seconds = self._checkpoint_at - began
        self._behind = -written

    async def _save(self) -> None:
        try:
            await self._take_checkpoint()
        except OSError as e:
            log.warning("no checkpoint could be written, the older one counts: %s", e)

    # --- append -----------------------------------------------------------------------------

    async def wait_for_room(self) -> None:
        """Wait while too many bytes are pending. Callers go on in the order in which they came.

        Does not suspend when there is room: then the order of calls is that of the appends.
        """
        await self._open_writer.wait_for_room()

    def append(
        self,
        partition: Partition,
        batches: Sequence[tuple[BatchHeader, memoryview]],
        *,
        urgent: bool = False,
        writes: list[WriteTimes] | None = None,
    ) -> asyncio.Future[list[int]]:
        """Queue checked batches now; the future gives the offset of each batch's first record.

        The order of the calls is the log's order. Cancelling the future does not take the batches
        back. Call `wait_for_room` before, or memory is not bounded. What is `urgent` may use the
        reserve of a full disk. `writes` is given the times of the write.

        The future raises:
            InDoubtError: nobody knows if the batches are in the log.
            StorageError: they are not.
        """
        return self._open_writer.append(partition, batches, urgent=urgent, writes=writes)

    # --- read -------------------------------------------------------------------------------

    async def read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
    ) -> list[memoryview]:
        """Whole batches from the one that holds `offset` on, together at most `max_bytes`.

        With `at_least_one` the first batch is returned however large. `offset` must be within
        [log_start, high_watermark]; at the high watermark there is nothing.

        Raises:
            StorageError: the bytes cannot be read.
            CorruptError: they are lost to damage.
            OffsetGoneError: the log start is above `offset`.
        """
        return await self.read_within(partition, offset, Room(max_bytes, _MANY, at_least_one))

    async def read_within(
        self, partition: Partition, offset: int, room: Room, times: ReadTimes | None = None
    ) -> list[memoryview]:
        """As `read`, with a bound for the number of batches, too.

        `times` is told when what was done.

        Raises:
            See `read`.
        """
        try:
            try:
                return await self._reader.batches(partition, offset, room, times)
            except BadIndexError as e:
                if not await self._mend(e.segment):
                    raise
                return await self._reader.batches(partition, offset, room, times)
        except (OSError, Malformed) as e:
            log.warning(
                "virtual topic %s cannot be read at offset %d: %s", partition.id.key, offset, e
            )
            raise StorageError(str(e)) from e

    async def rows(self, partition: Partition, start: int, end: int) -> list[IndexRow]:
        """The index rows of the batches that hold the offsets in [start, end) and are not lost.

        Raises:
            StorageError: the index cannot be read.
            OffsetGoneError: the log start is above `start`.
        """
        found: list[IndexRow] = []
        while start < end:
            try:
                rows = await self._reader.rows(partition, start, lambda row: row.base_offset < end)
            except CorruptError:
                start = self._contents.quarantine.end_of_lost(partition.id, start)
                continue
            except BadIndexError as e:
                if not await self._mend(e.segment):
                    raise StorageError(str(e)) from e
                continue
            except (OSError, Malformed) as e:
                raise StorageError(str(e)) from e
            if not rows:
                break
            found += rows
            start = rows[-1].base_offset + rows[-1].record_count
        return found

    async def _mend(self, segment: Segment) -> bool:
        """Make a segment's index again, once; whether it is worth reading again."""
        key = segment.number, segment.salt
        task = self._mending.get(key)
        if task is None:
            task = self._mending[key] = asyncio.create_task(self._make_index(segment))
        elif task.done():
            return False
        return await asyncio.shield(task)

    async def _make_index(self, segment: Segment) -> bool:
        make = partial(rebuild_index, self._disk, segment)
        async with self._contents.naming:
            try:
                if segment is self._contents.segments[-1]:
                    return await self._open_writer.run(make)  # appends wait
                if segment in self._contents.segments:
                    return await asyncio.to_thread(make)
            except (OSError, Malformed) as e:
                log.warning("%s cannot be made again: %s", index_name(segment.number), e)
                return False
        return True  # rewritten or freed meanwhile

    def end_of_lost(self, partition: Partition, offset: int) -> int:
        """Where what was lost to damage at `offset` ends."""
        return self._contents.quarantine.end_of_lost(partition.id, offset)

    async def next_readable(self, partition: Partition, offset: int) -> int:
        """The first offset above this one that has an entry; the high watermark if none has.

        Raises:
            StorageError: the index cannot be read.
        """
        slices = Slices(_LOOKED_UP_PER_SLICE)
        offset += 1
        while (offset := self.end_of_lost(partition, offset)) < partition.high_watermark:
            await slices.done()
            try:
                if await self._reader.has_entry(partition, offset):
                    break
            except OSError as e:
                raise StorageError(str(e)) from e
            offset += 1
        return offset

    def is_damaged(self, partition: PartitionId) -> bool:
        """Whether any of its offsets that count are lost."""
        log_start, _ = self.offsets(partition)
        return self._contents.quarantine.first_lost(partition, log_start) is not None

    def readable(
        self, partition: Partition, offset: int, enough: int, most: int
    ) -> tuple[int, int]:
        """Bytes of whole batches from `offset` on, and how many these are; counting stops once
        the bytes are `enough`, or the batches the `most`.

        Does not wait for the device: where the index is not in memory, whoever asks is far
        behind, and there is taken to be enough.

        Raises:
            StorageError: the index cannot be read, or the first batch is lost.
            OffsetGoneError: the log start is above `offset`.
        """
        try:
            return self._reader.readable(partition, offset, enough, most)
        except BadIndexError:
            return enough, 1  # the read has it made again
        except (OSError, Malformed) as e:
            raise StorageError(str(e)) from e

    @property
    def _open_writer(self) -> Writer:
        assert self._writer is not None, "the log is not open"
        return self._writer


def _bytes_behind(checkpoint: Checkpoint | None, segments: Sequence[Segment]) -> int:
    """How much of the log a checkpoint does not know."""
    known = sum(state.end for state in checkpoint.segments) if checkpoint is not None else 0
    return max(0, sum(segment.end for segment in segments) - known)


def _has_freed(segments: Sequence[Segment]) -> bool:
    """Whether records may have been removed: then not all producers are known by theirs.

    Ids are dense in append order, so a missing one was removed, or lost. The numbers of segments
    prove nothing: one that never got its header leaves a gap, too.
    """
    expected = 0
    for segment in segments:
        if segment.first_id is None:
            continue
        if segment.kind == REWRITTEN or segment.first_id != expected:
            return True
        expected = segment.next_id
    return False
