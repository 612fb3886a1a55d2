"""A commit group: the batches of one write, with their ids, offsets, positions and index rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from quafka_broker.partitions.outcome import Settle
from quafka_broker.partitions.partition import Partition
from quafka_broker.wal.disk import Buffer
from quafka_loop.eager_task import DirectFuture
from quafka_proto.log_format import ENTRY_HEADER_SIZE, EntryStart, IndexRow, row_flags
from quafka_proto.records import PATCHED_SIZE, TRANSACTIONAL, BatchHeader
from quafka_telemetry.metrics import Histogram

MAX_APPENDS = 512
"""The maximum number of appends per commit. The event loop assigns their ids in one turn."""

_MEMBERS_A_STEP = 500
_NO_START = EntryStart(bytes(PATCHED_SIZE), 0, 0)


class WriteTimes(NamedTuple):
    """When one write of the log began, was written and was synced (ns since the epoch).

    `synced` equals `written` where `wal.fsync` does not sync each write. `put`: the write is
    durable as an object of a store, not by a sync.
    """

    began: int
    written: int
    synced: int
    appends: int
    bytes: int
    put: bool = False


class GroupedBatch(NamedTuple):
    """A batch that is in the log together with an append's batches, or not at all."""

    partition: Partition
    header: BatchHeader
    batch: memoryview


@dataclass(slots=True, eq=False)
class Append:
    """Checked batches for one partition, and the future for their offsets.

    Attributes:
        members: subsequent batches of any partitions; see `AppendQueue.append`.
        urgent: the append may use the reserve of a full disk.
        writes: receives the times of the write, for a trace.
        settle: see `AppendQueue.append`.
    """

    partition: Partition
    batches: Sequence[tuple[BatchHeader, memoryview]]
    size: int
    done: DirectFuture[list[int]]
    urgent: bool
    writes: list[WriteTimes] | None = None
    settle: Settle | None = None
    members: Sequence[GroupedBatch] = ()

    def partitions(self) -> Iterator[Partition]:
        """The partition of each batch, in the order of the log."""
        yield from repeat(self.partition, len(self.batches))
        for member in self.members:
            yield member.partition


@dataclass(slots=True)
class CommitGroup:
    """Gives each batch its id, offset and position as it is added.

    Attributes:
        salt: the salt of the active segment.
        next_id: the next global message id.
        position: the position of the next entry in the segment file.
        durable: the position up to which that file was known to be fsynced before this write.
        leader_epoch: the leader epoch of the batches.
        ends: the next offset of each partition with batches in this group, or in one that is not
            published yet.
        began: when the write began; `written` and `synced`: when those steps ended (ns).
        put: whether it becomes durable as an object of a store.
    """

    salt: int
    next_id: int
    position: int
    durable: int
    leader_epoch: int
    ends: dict[Partition, int] = field(default_factory=dict[Partition, int])
    appends: list[Append] = field(default_factory=list[Append])
    offsets: list[list[int]] = field(default_factory=list[list[int]])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    rows: list[IndexRow] = field(default_factory=list[IndexRow])
    size: int = 0
    began: int = 0
    written: int = 0
    synced: int = 0
    put: bool = False
    _batch: memoryview | None = None
    _start: EntryStart = _NO_START
    _rest: memoryview = memoryview(b"")  # noqa: RUF009 - empty
    _flags: int = 0

    def add(self, append: Append) -> None:
        """Place an append's batches after those of its partition. `add_members` does the rest."""
        partition = append.partition
        offset = self.ends.get(partition, partition.high_watermark)
        offsets: list[int] = []
        for header, batch in append.batches:
            self._place(partition, header, batch, offset)
            offsets.append(offset)
            offset += header.record_count
        self.ends[partition] = offset
        self.appends.append(append)
        self.offsets.append(offsets)
        self.size += append.size

    def add_members(self, append: Append) -> Iterator[None]:
        """Place the members of the last added append; one step for some of them."""
        offsets = self.offsets[-1]
        for at in range(0, len(append.members), _MEMBERS_A_STEP):
            some = append.members[at : at + _MEMBERS_A_STEP]
            offsets += [self._place_member(member) for member in some]
            yield

    def _place_member(self, member: GroupedBatch) -> int:
        partition, header, batch = member
        offset = self.ends.get(partition, partition.high_watermark)
        self._place(partition, header, batch, offset)
        self.ends[partition] = offset + header.record_count
        return offset

    def report_times(self) -> None:
        """Report the times of the write to the appends that record them."""
        asking = [append.writes for append in self.appends if append.writes is not None]
        if not asking:
            return
        appends = len(self.appends)
        times = WriteTimes(self.began, self.written, self.synced, appends, self.size, self.put)
        for writes in asking:
            if times not in writes:
                writes.append(times)

    def _place(
        self, partition: Partition, header: BatchHeader, batch: memoryview, offset: int
    ) -> None:
        if batch is not self._batch:  # the markers of a transaction are one batch
            self._take(header, batch)
        org_id, topic_hash, number, generation = partition.id
        global_id, count, length = self.next_id, header.record_count, header.length
        start = self._start.placed(
            global_id, offset, self.durable, topic_hash, org_id, number, generation, count,
            self.leader_epoch,
        )  # fmt: skip
        self.buffers += (start, self._rest)
        self.rows.append(
            IndexRow(
                global_id,
                offset,
                self.position,
                topic_hash,
                header.max_timestamp,
                header.producer_id,
                header.base_sequence,
                org_id,
                number,
                generation,
                count,
                length,
                header.producer_epoch,
                self._flags,
                self.leader_epoch,
            )
        )
        self.next_id = global_id + count
        self.position += ENTRY_HEADER_SIZE + length

    def _take(self, header: BatchHeader, batch: memoryview) -> None:
        """Prepare the common parts of a batch's entries."""
        self._batch = batch
        # Only the patched bytes are copied; the producer's buffer is written as it is.
        self._rest = batch[PATCHED_SIZE:]
        self._start = EntryStart(batch[:PATCHED_SIZE], self.salt, header.length)
        self._flags = 0
        if header.attributes & TRANSACTIONAL:
            self._flags = row_flags(header.attributes, batch)


@dataclass(slots=True)
class WriterStats:
    """Plain counters since the start. `largest`: the maximum number of appends in one commit."""

    groups: int = 0
    appends: int = 0
    bytes: int = 0
    largest: int = 0
    fsync: Histogram = field(default_factory=Histogram)
    """Seconds until each group was durable: of its sync in a thread, or of its object."""

    def count(self, group: CommitGroup) -> None:
        """Count a published group."""
        self.groups += 1
        self.appends += len(group.appends)
        self.bytes += group.size
        self.largest = max(self.largest, len(group.appends))
