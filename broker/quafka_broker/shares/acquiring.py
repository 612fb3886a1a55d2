"""Acquires records for one op: looks at all of its partitions, parks the op, and takes records.

Records are taken only when there are enough, so a waiting op holds none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from quafka_broker.partitions.errors import CorruptError, OffsetGoneError, StorageError
from quafka_broker.partitions.parked_fetches import ParkedFetches
from quafka_broker.shares.limits import Terms
from quafka_broker.shares.shares import BrokerShares
from quafka_broker.shares.states import Holder, JustAcquired, OffsetSpan, alone_from
from quafka_broker.shares.table import PartitionPlace, SharePartition
from quafka_broker.shares.turns import WaitingMember
from quafka_broker.shares.window import joined
from quafka_broker.sources.source import FoundBatches, PartitionSource, Reading
from quafka_broker.wal.runs import EntryRun, Room
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops import places
from quafka_mesh_ops.ops.records import MOST_BATCHES
from quafka_mesh_ops.ops.shares import MOST_ACQUIRED, AcquireRecords
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import ROW_CONTROL, ROW_TRANSACTIONAL, IndexRow
from quafka_proto.records import CONTROL, TRANSACTIONAL, BatchHeader, read_header
from quafka_telemetry import semconv
from quafka_telemetry.tracing import UNTRACED, Steps

_PARTITIONS_PER_SLICE = 50
_FIRST_BATCHES, _FEW_BATCHES = 4, 256
"""Batches whose index rows are read at once: most ops need few."""


@dataclass(slots=True, eq=False)
class AcquiringTarget:
    """One partition of an op, or its error, and the records acquired from it."""

    source: PartitionSource | None
    share: SharePartition | None = None
    error: ErrorCode = ErrorCode.NONE
    place: PartitionPlace | None = None
    acquired: list[JustAcquired] = field(default_factory=list[JustAcquired])
    batches: list[OffsetSpan] = field(default_factory=list[OffsetSpan])


class Acquiring:
    """One op. `targets` have the answers after `run`."""

    def __init__(
        self,
        shares: BrokerShares,
        parked: ParkedFetches,
        op: AcquireRecords,
        targets: Sequence[AcquiringTarget],
        terms: Terms,
    ) -> None:
        self.holder = Holder(op.member_id, op.session)
        self._shares = shares
        self._parked = parked
        self._op = op
        self._terms = terms
        self.targets = targets
        self.abandoned = False
        self._waited_for = {
            target.share: target.source
            for target in targets
            if target.share is not None and target.source is not None
        }
        self._wanted = max(1, min(op.min_bytes, op.max_bytes))
        self.parked_seconds = 0.0

    async def run(self, until: float, steps: Steps = UNTRACED) -> None:
        """Acquire now if there are enough records; otherwise wait, up to loop time `until`."""
        loop = asyncio.get_running_loop()
        if await self._try(last=self._op.max_wait_ms <= 0 or not self.targets):
            return
        shares = {source.id: share for share, source in self._waited_for.items()}
        began = loop.time()
        with (
            steps.begin(semconv.SHARE_PARK),
            WaitingMember(self._parked, shares, until, self._has_more) as parked,
        ):
            for source in self._waited_for.values():
                source.expect_growth()
            while not (await self._try(last=parked.over) or parked.over or self.abandoned):
                parked.pass_on()
                await parked.changed()
                while not (parked.over or self.abandoned or self._has_news()):
                    parked.pass_on()
                    await parked.changed()
        self.parked_seconds = loop.time() - began

    def _has_news(self) -> bool:
        """Whether to look again: another member may have taken all records since the wake-up."""
        if len(self.targets) > _PARTITIONS_PER_SLICE:
            return True
        return any(map(self._has_more, self._waited_for))

    def _has_more(self, share: SharePartition) -> bool:
        """Whether members may find records in a share partition, or a new share partition."""
        source = self._waited_for[share]
        if share.window.next_offset < source.end(self._terms.committed):
            return True
        return self._shares.table.find(share.group, share.place) is not share

    def abandon(self) -> None:
        """Stop taking records: the member is gone."""
        self.abandoned = True

    def give_back(self) -> None:
        """Give the acquired records back."""
        for target in self.targets:
            if target.share is not None:
                for part in target.acquired:
                    self._shares.give_back(target.share, self.holder, part.first, part.end)

    async def _try(self, *, last: bool) -> bool:
        """Take the available records if they are enough, or this is the `last` chance."""
        while True:
            found = await self._look()
            must_answer = last or any(target.error for target in self.targets)
            if found < self._wanted and not (must_answer and found):
                return must_answer
            if self._op.look_only or await self._take():
                return True

    # --- looking ----------------------------------------------------------------------------

    async def _look(self) -> int:
        """The bytes that can be acquired, up to the wanted number."""
        size = 0
        slices = Slices(_PARTITIONS_PER_SLICE)
        for target in self.targets:
            if size >= self._wanted:
                break
            size += self._size_of(target, self._wanted - size)
            await slices.done()
        return size

    def _size_of(self, target: AcquiringTarget, wanted: int) -> int:
        offset = self._next_offset(target)
        if offset is None or target.source is None:
            return 0
        committed = self._terms.committed
        try:
            size, _ = target.source.readable(offset, wanted, _FEW_BATCHES, committed)
        except CorruptError:
            target.error = ErrorCode.CORRUPT_MESSAGE
        except OffsetGoneError:
            return 0  # looked at again with the new log start
        except StorageError:
            target.error = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            return min(size, wanted)
        return 0

    def _next_offset(self, target: AcquiringTarget) -> int | None:
        source, share = target.source, target.share
        if source is None or share is None or target.error:
            return None
        if self._shares.table.find(share.group, share.place) is not share:
            target.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return None
        unready = source.unready(share.window.next_offset)
        if unready is not None:
            if isinstance(unready, ErrorCode):
                target.error = unready
            return None
        return self._shares.look(share, source, self._terms)

    # --- taking -----------------------------------------------------------------------------

    async def _take(self) -> bool:
        """Acquire records; False: there were only records that no member may have."""
        op = self._op
        if self.abandoned:
            return True
        bytes_left, records_left = op.max_bytes, max(1, min(op.max_records, MOST_ACQUIRED))
        batches_left = MOST_BATCHES
        is_first, progress = True, False
        slices = Slices(_PARTITIONS_PER_SLICE)
        for target in self.targets:
            await slices.done()
            few = _FIRST_BATCHES
            while records_left > 0 and batches_left > 0 and (bytes_left > 0 or is_first):
                offset = self._next_offset(target)
                if offset is None or target.source is None or target.share is None:
                    break
                if target.acquired and offset < target.acquired[-1].end:
                    break  # given back meanwhile: left to the next op, since answers are in order
                window = target.share.window
                if not is_first and window.comes_alone(self._terms.most_deliveries):
                    break
                room = Room(max(0, bytes_left), min(batches_left, few), is_first)
                spans = await self._spans(target, offset, room)
                if not spans or self.abandoned or self._next_offset(target) is None:
                    break
                acquired = self._shares.take(
                    target.share, self.holder, spans, offset, records_left, self._terms,
                    exact=op.exact,
                )  # fmt: skip
                progress = True
                held = _held(spans, acquired)
                target.acquired = joined([*target.acquired, *acquired])
                target.batches = _adjacent([*target.batches, *held])
                records_left -= sum(part.end - part.first for part in acquired)
                if acquired and acquired[-1].deliveries > alone_from(self._terms.most_deliveries):
                    records_left = 0
                bytes_left -= sum(span.size for span in held)
                batches_left -= len(spans)
                is_first = is_first and not acquired
                few = min(few * 4, _FEW_BATCHES)
        found = any(target.acquired or target.error for target in self.targets)
        return found or not progress

    async def _spans(self, target: AcquiringTarget, offset: int, room: Room) -> list[OffsetSpan]:
        assert target.source is not None
        reading = Reading(self._terms.committed, None, _rows_only)
        try:
            found = await target.source.read(offset, room, reading)
        except CorruptError:
            target.error = ErrorCode.CORRUPT_MESSAGE
        except OffsetGoneError:
            pass  # looked at again with the new log start
        except StorageError:
            target.error = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            return spans_of(found)
        return []


def _rows_only(_runs: Sequence[EntryRun]) -> list[places.ObjectPlace]:
    """Batches by place: only their rows are read here."""
    return []


def spans_of(found: FoundBatches) -> list[OffsetSpan]:
    """The batches of a read: their offsets, and whether consumers may have their records."""
    aborted: dict[int, list[tuple[int, int]]] = {}
    for each in found.aborted:
        aborted.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))

    def is_hidden(control: bool, transactional: bool, producer_id: int, offset: int) -> bool:
        if control:
            return True
        its = aborted.get(producer_id, ()) if transactional else ()
        return any(first <= offset <= last for first, last in its)

    def of_row(row: IndexRow) -> OffsetSpan:
        hidden = is_hidden(
            bool(row.flags & ROW_CONTROL), bool(row.flags & ROW_TRANSACTIONAL), row.producer_id,
            row.base_offset,
        )  # fmt: skip
        return OffsetSpan(row.base_offset, row.base_offset + row.record_count, row.length, hidden)

    def of_batch(header: BatchHeader) -> OffsetSpan:
        hidden = is_hidden(
            bool(header.attributes & CONTROL), bool(header.attributes & TRANSACTIONAL),
            header.producer_id, header.base_offset,
        )  # fmt: skip
        return OffsetSpan(header.base_offset, header.last_offset + 1, header.length, hidden)

    if found.rows:
        return list(map(of_row, found.rows))
    return [of_batch(read_header(batch)) for batch in found.records]


def _held(spans: Sequence[OffsetSpan], acquired: Sequence[JustAcquired]) -> list[OffsetSpan]:
    """The batches that hold acquired records, each from the first of them on.

    The log may start within a batch, and cannot be read from below its start.
    """
    found: list[OffsetSpan] = []
    parts = iter(acquired)
    part = next(parts, None)
    for span in spans:
        while part is not None and part.end <= span.first:
            part = next(parts, None)
        if part is None:
            break
        if part.first < span.end:
            found.append(span._replace(first=max(span.first, part.first)))
    return found


def _adjacent(spans: Sequence[OffsetSpan]) -> list[OffsetSpan]:
    """Merge adjacent batches."""
    found: list[OffsetSpan] = []
    for span in spans:
        last = found[-1] if found else None
        if last is not None and last.end == span.first:
            found[-1] = OffsetSpan(last.first, span.end, last.size + span.size)
        else:
            found.append(span)
    return found
