"""One partition whose records are the entries of a Redis stream."""

from __future__ import annotations

import asyncio
import logging

from quafka_broker.partitions.errors import CorruptError, OffsetGoneError, StorageError
from quafka_broker.partitions.leader_epochs import UNDEFINED, EpochEnd, LeaderEpochs
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.time_search import Stamp
from quafka_broker.sources.redis.batches import Entry, filler
from quafka_broker.sources.redis.bounds import PartitionBounds, StreamBounds
from quafka_broker.sources.redis.entry_ids import ZERO, EntryId, UnmappedIdError
from quafka_broker.sources.redis.fields import read_fields
from quafka_broker.sources.redis.requests import ReadRequest
from quafka_broker.sources.redis.server import RedisServer
from quafka_broker.sources.redis.writer import StreamConfig, StreamWriter
from quafka_broker.sources.source import FoundBatches, ProduceFacts, Reading, Waiters
from quafka_broker.wal.commit_group import WriteTimes
from quafka_broker.wal.runs import Room
from quafka_proto.errors import ErrorCode
from quafka_proto.records import BATCH_HEADER_SIZE, LEAST_RECORD, BatchHeader

log = logging.getLogger("quafka.broker.redis")

_FRESH_SECONDS = 0.05
"""The maximum age of bounds that answer a request for bounds."""
_WATCHED_SECONDS = 1.0
"""The maximum age for a watched stream, which reports all entries but not trimming."""
_PROBLEM_SECONDS = 1.0
"""The pause before a new request to a stream that has refused one: it may have another type."""
_LARGEST_READ = 2 << 20
_FIRST_ENTRIES = 8
_MARGIN = 1.05


class RedisPartition:
    """One partition; implements `PartitionSource`."""

    deletes_records = False

    def __init__(
        self,
        partition: PartitionId,
        stream: bytes,
        server: RedisServer,
        config: StreamConfig,
        waiters: Waiters,
        epochs: LeaderEpochs,
    ) -> None:
        self.id = partition
        self.stream = stream
        self.server = server
        self._config = config
        self._waiters = waiters
        self._epochs = epochs
        self._bounds = PartitionBounds(config.encoder.offsets)
        self._learned_at = -1e9
        self._moment = -1
        self._question: asyncio.Future[None] | None = None
        self._ask_again_at = 0.0
        self._entry_size = 0.0
        self._writer = StreamWriter(stream, server, config, self._written)
        self._reported = ""

    # --- bounds -----------------------------------------------------------------------------

    def unready(self, offset: int = -1) -> asyncio.Future[None] | None:
        """None if the bounds are fresh enough for a read at this offset.

        While the server is down a request is open until the next attempt, so that fetches park
        instead of being repeated as fast as clients can.
        """
        bounds = self._bounds
        if self.server.is_up and bounds.high_watermark >= 0 and self._question is None:
            if bounds.log_start <= offset < bounds.high_watermark:
                return None  # the read itself checks the bounds
            age = asyncio.get_running_loop().time() - self._learned_at
            if age < _FRESH_SECONDS:
                return None
            at_end = offset == bounds.high_watermark
            if at_end and age < _WATCHED_SECONDS and self.server.watches(self):
                return None
        return self._ask()

    def _ask(self) -> asyncio.Future[None]:
        if self._question is None:
            loop = asyncio.get_running_loop()
            self._question = loop.create_future()
            pause = self._ask_again_at - loop.time()
            if pause > 0:
                loop.call_later(pause, self.server.ask, self)
            else:
                self.server.ask(self)
        return self._question

    def learn(self, answer: StreamBounds | StorageError, asked: int) -> None:
        """See `RedisStreamReader`."""
        now = asyncio.get_running_loop().time()
        if isinstance(answer, StorageError):
            self._ask_again_at = now + _PROBLEM_SECONDS if self.server.is_up else 0.0
            self._report(str(answer))
        else:
            self._take(answer, asked)
            if self.is_waited_for:
                self.server.watch(self)
        question, self._question = self._question, None
        if question is not None and not question.done():
            question.set_result(None)
        self._waiters.wake((self.id,))

    def grew(self, entry: EntryId) -> None:
        """See `RedisStreamReader`. The woken fetch reads all entries, and the bounds."""
        self._written(self._config.encoder.offsets.offset_after(entry))

    def _take(self, stream: StreamBounds, asked: int) -> None:
        """Take over bounds that are newer than the known ones."""
        if asked < self._moment and self._bounds.is_ahead_of(stream):
            return  # another answer overtook this one; growth is always news
        self._moment = self.server.moment
        self._learned_at = asyncio.get_running_loop().time()
        self._ask_again_at = 0.0
        truncations = self._bounds.truncations
        self._bounds.learn(stream)
        if self._bounds.truncations > truncations:
            log.warning(
                "%s: stream %r has lost entries and continues at %d", self.server.name,
                self.stream, self._bounds.high_watermark,
            )  # fmt: skip

    def _reach(self, end: int) -> None:
        """Note that entries below `end` are known; bounds of earlier requests may lack them."""
        self._moment = self.server.moment
        self._bounds.reach(end)

    def _report(self, problem: str) -> None:
        if self.server.is_up and problem != self._reported:
            log.warning("%s: stream %r: %s", self.server.name, self.stream, problem)
        self._reported = problem

    def expect_growth(self) -> None:
        """Watch the stream."""
        if self._bounds.high_watermark >= 0:
            self.server.watch(self)

    @property
    def is_waited_for(self) -> bool:
        """Whether a fetch is parked."""
        return self._waiters.waits_for(self.id)

    @property
    def last(self) -> EntryId:
        """The id below the high watermark."""
        end = self._bounds.high_watermark
        return self._config.encoder.offsets.id_at(end - 1) if end > 0 else ZERO

    @property
    def log_start(self) -> int:
        """The first offset from which a read misses no entry."""
        return self._bounds.log_start

    @property
    def high_watermark(self) -> int:
        """The offset after the last entry that was ever added."""
        return self._bounds.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The high watermark: there are no transactions."""
        return self._bounds.high_watermark

    @property
    def size(self) -> int:
        """Unknown without walking the stream."""
        return 0

    def end(self, committed: bool) -> int:
        """The high watermark."""
        return self._bounds.high_watermark

    async def records_from(self, offset: int) -> int | None:
        """The number of entries, if Redis's counters show it."""
        return self._bounds.records_from(offset)

    # --- leader epochs ----------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The broker's current epoch."""
        return self._epochs.current

    def check_epoch(self, current: int) -> ErrorCode:
        """The answer to a client whose leader epoch is `current`."""
        return self._epochs.check(current)

    def epoch_at(self, offset: int) -> int:
        """The current epoch, since Redis has none. Raises OffsetGoneError."""
        if offset < self.log_start:
            raise OffsetGoneError(f"offset {offset} is below the log start {self.log_start}")
        return self._epochs.current

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Every epoch ends at the high watermark, to which consumers above it truncate."""
        if not 0 <= epoch <= self._epochs.current:
            return UNDEFINED
        return EpochEnd(epoch, self.high_watermark)

    # --- reading ----------------------------------------------------------------------------

    def readable(self, offset: int, enough: int, most: int, committed: bool) -> tuple[int, int]:
        """An estimate from Redis's counters and the size of the entries read so far."""
        records = self._bounds.records_at_most(offset)
        size = int(records * (self._entry_size or LEAST_RECORD)) + BATCH_HEADER_SIZE
        return min(size, enough), 1

    async def read(self, offset: int, room: Room, reading: Reading) -> FoundBatches:
        """Read batches from the first entry at or after the offset."""
        end = self.high_watermark
        if offset >= end:
            return FoundBatches([])
        limit = min(room.bytes, _LARGEST_READ)
        asked = self.server.moment
        answer = await self.server.read(
            ReadRequest(
                self.stream,
                offset,
                limit,
                room.at_least_one,
                room.batches,
                self._entries_in(limit),
                self._epochs.current,
                self._config.encoder,
            )
        )
        self._take(answer.bounds, asked)
        if offset < self.log_start:
            raise OffsetGoneError(f"offset {offset} is below the log start {self.log_start}")
        encoded = answer.encoded
        if encoded.batches:
            self._entry_size = answer.entry_size + LEAST_RECORD
            self._bounds.count_read(offset, encoded.offsets)
            self._reach(encoded.end)
            return FoundBatches(list(encoded.batches))
        if encoded.unmapped is not None:
            self._report(str(encoded.unmapped))
            raise CorruptError(str(encoded.unmapped))
        if not answer.is_empty:
            return FoundBatches([])  # the first entry is larger than the room
        # Entries added after the read are above the high watermark from before it.
        end = min(end, self.high_watermark)
        most = min(room.batches, max(limit // BATCH_HEADER_SIZE, int(room.at_least_one)))
        return FoundBatches(list(filler(offset, end, self._epochs.current, most)))

    def _entries_in(self, limit: int) -> int:
        if not self._entry_size:
            return _FIRST_ENTRIES
        return int(limit / self._entry_size * _MARGIN) + 1

    async def first_from(self, timestamp: int) -> Stamp | None:
        """The first entry whose id has this time or a later one."""
        offsets = self._config.encoder.offsets
        start = offsets.id_at(max(self.log_start, offsets.first_offset_of(timestamp)))
        return self._stamp(await self.server.entry_at(self.stream, start))

    async def latest(self) -> Stamp | None:
        """The last entry: ids ascend with the time."""
        return self._stamp(await self.server.entry_at(self.stream, ZERO, last=True))

    def _stamp(self, entry: Entry | None) -> Stamp | None:
        if entry is None:
            return None
        entry_id = EntryId.parse(entry[0])
        try:
            return Stamp(self._config.encoder.offsets.offset_of(entry_id), entry_id.ms)
        except UnmappedIdError as e:
            raise CorruptError(str(e)) from e

    async def timestamp_of(self, offset: int, *, exact: bool) -> int | None:
        """The timestamp of the first record from an offset on."""
        if offset < self.log_start:
            raise OffsetGoneError(f"offset {offset} is below the log start {self.log_start}")
        start = self._config.encoder.offsets.id_at(offset)
        entry = await self.server.entry_at(self.stream, start)
        if entry is None:
            return None
        encoder = self._config.encoder
        found = None if encoder.entry_time else read_fields(entry[1], encoder.format).timestamp
        return EntryId.parse(entry[0]).ms if found is None else found

    # --- writing ----------------------------------------------------------------------------

    def append(
        self,
        batch: tuple[BatchHeader, memoryview],
        writes: list[WriteTimes] | None,
        request: ProduceFacts | None = None,
    ) -> asyncio.Future[list[int]]:
        """Queue a batch for the stream; see `StreamWriter.append`."""
        return self._writer.append(batch)

    def _written(self, end: int) -> None:
        """Note entries that were added right below `end`."""
        self._reach(end)
        self._waiters.wake((self.id,))
