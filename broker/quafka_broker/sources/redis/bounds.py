"""The bounds of a stream in Redis's answers, and those of its partition. Pure.

| bound | definition |
| --- | --- |
| high watermark | the offset after the last id that was ever added, even if that entry is deleted |
| log start | the lowest offset from which a read misses no entry that Redis removed |

The log start is 0 while nothing was removed. Otherwise it is the first entry's offset, or an
earlier end of the stream if Redis's counters show that all removed entries are below it. So a
waiting consumer that has read everything is not out of range when the entries that it has read are
trimmed before the next one arrives.

The high watermark does not fall merely because Redis has lost its last entries (a failover to a
lagging replica, a restart without AOF): the next ids are usually later than the lost ones. If an
entry nevertheless arrives below it, the high watermark falls to the true end, and a consumer above
that must truncate.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from quafka_broker.sources.redis.entry_ids import ZERO, EntryId, EntryIdMap

_MARKS = 64
_READS = 4
_COUNTED_OFFSETS = 1 << 14


class StreamBounds(NamedTuple):
    """The bounds of a stream in Redis; see scripts.BOUNDS.

    Attributes:
        first: the first entry; None in an empty stream.
        last: the last id that was ever added.
        length: the number of entries.
        added: the number of entries ever added; -1 if the server does not count (Redis 6).
        deleted: the highest id that was deleted from the middle.
    """

    first: EntryId | None
    last: EntryId
    length: int
    added: int
    deleted: EntryId

    @classmethod
    def parse(cls, answer: Sequence[bytes | int]) -> StreamBounds:
        """Parse the script's answer for one stream.

        Raises:
            ValueError: the answer has another form.
        """
        if len(answer) != len(cls._fields):
            raise ValueError(f"{len(answer)} bounds of a stream")
        first, last, length, added, deleted = answer
        return cls(_optional_id(first), _id(last), int(length), int(added), _id(deleted or b"0-0"))


def _id(answer: bytes | int) -> EntryId:
    if not isinstance(answer, bytes):
        raise ValueError(f"{answer} is no entry id")  # noqa: TRY004 - Redis's answer is at fault
    return EntryId.parse(answer)


def _optional_id(answer: bytes | int) -> EntryId | None:
    return _id(answer) if answer else None


class _Mark(NamedTuple):
    """An end of the stream: `below` entries were ever added below `offset`."""

    offset: int
    below: int


class _CountedRead(NamedTuple):
    """The offsets of successive entries; `below` entries were ever added below the first."""

    offsets: array[int]
    below: int
    end: int


class PartitionBounds:
    """The bounds of one partition, from all answers so far. -1 before the first.

    Attributes:
        end: the true end of the stream; below `high_watermark` while its last entries are lost.
        truncations: how often the high watermark fell.
    """

    def __init__(self, offsets: EntryIdMap) -> None:
        self._offsets = offsets
        self._stream: StreamBounds | None = None
        self._marks: list[_Mark] = []
        self._reads: deque[_CountedRead] = deque(maxlen=_READS)
        self.log_start = self.high_watermark = self.end = -1
        self.truncations = 0

    def learn(self, stream: StreamBounds) -> None:
        """Take over an answer of Redis. Answers must arrive in the order of the commands."""
        end = 0 if stream.last == ZERO else self._offsets.offset_after(stream.last)
        before = self._stream
        if before is not None and (stream.added < before.added or end < self.end):
            self._forget(stream)
        if end >= self.high_watermark:
            self.high_watermark = end
        elif end > self.end:
            self.high_watermark = end
            self.truncations += 1
        self.end = end
        self._stream = stream
        if stream.added >= 0:
            self._mark(_Mark(self.high_watermark, stream.added))
        self.log_start = self._start(stream)

    def is_ahead_of(self, stream: StreamBounds) -> bool:
        """Whether later entries are known: the answer is older, or Redis has lost entries."""
        known = self._stream
        end = 0 if stream.last == ZERO else self._offsets.offset_after(stream.last)
        return known is not None and (end < self.end or stream.added < known.added)

    def reach(self, end: int) -> None:
        """Note an entry that was added or read right below `end`, after the last answer."""
        if self.high_watermark >= 0 and end > self.end:
            self.end = end
            self.high_watermark = max(self.high_watermark, end)

    def _forget(self, stream: StreamBounds) -> None:
        """Discard earlier counts: entries were lost, or the stream was created anew."""
        self._marks.clear()
        self._reads.clear()
        if not stream.length and stream.added >= 0:
            self._mark(_Mark(self.high_watermark, stream.added))

    def _mark(self, mark: _Mark) -> None:
        if self._marks and mark.offset <= self._marks[-1].offset:
            return
        self._marks.append(mark)
        if len(self._marks) > _MARKS:
            del self._marks[1:-1:2]

    def _start(self, stream: StreamBounds) -> int:
        if stream.first is None:
            first = self.high_watermark
        else:
            first = min(self._offsets.offset_after(stream.first) - 1, self.high_watermark)
        if stream.added < 0:
            return first
        removed = stream.added - stream.length
        if not removed and not self.truncations and not self._began_anew:
            return 0
        return min([first, *(mark.offset for mark in self._marks if mark.below >= removed)])

    @property
    def _began_anew(self) -> bool:
        """Whether the stream had entries before its first one."""
        return bool(self._marks) and not self._marks[0].below and self._marks[0].offset > 0

    # --- counting ---------------------------------------------------------------------------

    def count_read(self, start: int, offsets: Sequence[int]) -> None:
        """Note a read of all entries from `start` on, at these offsets."""
        below = self._count_below(start)
        if below is not None and 0 < len(offsets) <= _COUNTED_OFFSETS:
            self._reads.append(_CountedRead(array("q", offsets), below, offsets[-1] + 1))

    def records_from(self, offset: int) -> int | None:
        """The number of entries from this offset on; None if Redis's counters do not show it."""
        stream = self._stream
        if stream is None:
            return None
        if offset >= self.end:
            return 0
        if stream.first is None or offset < self._offsets.offset_after(stream.first):
            return stream.length
        below = self._count_below(offset)
        if below is None or stream.added < 0 or stream.deleted >= self._offsets.id_at(offset):
            return None
        return max(0, stream.added - below)

    def _count_below(self, offset: int) -> int | None:
        """The number of entries ever added below an offset, if known."""
        stream = self._stream
        if stream is None or stream.added < 0:
            return None
        if stream.first is not None and offset < self._offsets.offset_after(stream.first):
            is_whole = stream.deleted < stream.first
            return stream.added - stream.length if is_whole else None
        for read in reversed(self._reads):
            if read.offsets[0] <= offset <= read.end:
                return read.below + bisect_left(read.offsets, offset)
        at = bisect_left(self._marks, (offset, 0))
        if at < len(self._marks) and self._marks[at].offset == offset:
            return self._marks[at].below
        return None

    def records_at_most(self, offset: int) -> int:
        """An upper bound of the number of entries from this offset on."""
        stream = self._stream
        if stream is None or offset >= self.end:
            return 0
        at = bisect_left(self._marks, (offset, 1 << 62)) - 1
        if at < 0 or stream.added < 0:
            return stream.length
        return max(0, min(stream.length, stream.added - self._marks[at].below))
