"""Encodes entries into record batches.

Gaps between ids become gaps in batches, as in Kafka after compaction. The first batch begins at the
offset of the fetch, and each other one at the end of the previous batch, as far as offset deltas
reach: batches of consecutive reads are adjacent, as the gateways' cache requires. The records of a
read do not depend on where earlier reads ended; the frames of the batches do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import lt

from quafka_broker.sources.redis.batch_builder import MAX_SPAN, BatchBuilder
from quafka_broker.sources.redis.entry_ids import OFFSETS, EntryId, EntryIdMap, UnmappedIdError
from quafka_broker.sources.redis.fields import Format, read_fields, read_plain
from quafka_proto.records import empty_batch

BATCH_BYTES = 512 << 10
"""The maximum size of a batch, unless it has only one record."""
Entry = tuple[bytes, Sequence[bytes]]
"""An entry in Redis's answer: its id, and its alternating names and values."""


@dataclass(slots=True)
class EncodedRead:
    """The records of a read.

    Attributes:
        end: the offset after the last record.
        offsets: the offset of each record.
        unmapped: the entry after the last record, if that entry has no offset.
    """

    batches: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    end: int = -1
    offsets: list[int] = field(default_factory=list[int])
    unmapped: UnmappedIdError | None = None

    def add(self, batch: BatchBuilder) -> None:
        """Add a batch that has records."""
        self.batches.append(batch.build())
        self.size += batch.size


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes the entries of a topic as records.

    `entry_time`: records have the times of their entry ids, regardless of their fields.
    """

    offsets: EntryIdMap
    format: Format = Format.AUTO
    entry_time: bool = False

    def encode(
        self,
        entries: Sequence[Entry],
        start: int,
        limit: int,
        *,
        at_least_one: bool,
        leader_epoch: int,
        most: int = 1 << 30,
    ) -> EncodedRead:
        """The first entries from offset `start` on, as at most `most` batches of `limit` bytes.

        With `at_least_one`, the first record is returned regardless of its size.

        Raises:
            ValueError: an entry has no id, is below `start`, or does not follow the previous one.
        """
        found = EncodedRead()
        times, offsets = self._ids(entries, start, found)
        batch = BatchBuilder(start, leader_epoch)
        is_auto = self.format is Format.AUTO
        done = 0
        for (_, flat), offset, ms in zip(entries, offsets, times, strict=False):
            if batch.count and (batch.size >= BATCH_BYTES or offset - batch.base > MAX_SPAN):
                found.add(batch)
                if len(found.batches) >= most:
                    break
                batch = BatchBuilder(offsets[done - 1] + 1, leader_epoch)
            key, value, headers, timestamp = (is_auto and read_plain(flat)) or read_fields(
                flat, self.format
            )
            if timestamp is None or self.entry_time:
                timestamp = ms
            record = batch.record(offset, timestamp, key, value, headers)
            if found.size + batch.size + len(record) > limit and (done or not at_least_one):
                break
            batch.append(record, offset, timestamp)
            done += 1
        if batch.count and len(found.batches) < most:
            found.add(batch)
        if done < len(offsets):
            found.unmapped = None
        found.offsets = offsets[:done]
        found.end = offsets[done - 1] + 1 if done else -1
        return found

    def _ids(
        self, entries: Sequence[Entry], start: int, found: EncodedRead
    ) -> tuple[list[int], list[int]]:
        """The milliseconds and offsets of the entries up to the first without an offset.

        Raises:
            ValueError: see `encode`.
        """
        if not entries:
            return [], []
        joined = b"-".join([entry[0] for entry in entries])
        if not joined.replace(b"-", b"").isdigit():
            raise ValueError("an entry has no id")
        numbers = list(map(int, joined.split(b"-")))
        times, sequences = numbers[::2], numbers[1::2]
        if len(times) != len(entries):
            raise ValueError("an entry has no id")
        bits = self.offsets.bits
        offsets = [ms << bits | sequence for ms, sequence in zip(times, sequences, strict=True)]
        if (
            max(sequences) >= self.offsets.per_ms
            or offsets[-1] >= OFFSETS
            or max(times) > times[-1]
        ):
            offsets = self._mapped(times, sequences, found)
        before = [start - 1, *offsets]
        if not all(map(lt, before, offsets)):
            raise ValueError("entries are not in the order of their ids")
        return times, offsets

    def _mapped(self, times: list[int], sequences: list[int], found: EncodedRead) -> list[int]:
        """The offsets up to the first entry without one."""
        offsets: list[int] = []
        for entry in map(EntryId, times, sequences):
            try:
                offsets.append(self.offsets.offset_of(entry))
            except UnmappedIdError as e:
                found.unmapped = e
                break
        return offsets


def filler(start: int, end: int, leader_epoch: int, most: int) -> list[bytes]:
    """Make at most this many batches without records over the offsets [start, end).

    They take a consumer to the high watermark if the last entries were deleted: otherwise its
    position would stay below the end for ever.
    """
    found: list[bytes] = []
    while start < end and len(found) < most:
        offsets = min(end - start, MAX_SPAN + 1)
        found.append(empty_batch(start, offsets, leader_epoch))
        start += offsets
    return found
