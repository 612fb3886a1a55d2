"""Consumer lag: how far a group is behind in each partition, in records and in seconds.

| value | definition |
| --- | --- |
| records | from the committed offset, or the log start if that is higher, to the high watermark |
| seconds | the age of the first of these records, by its timestamp; 0 without any |
| time to catch up | the records, divided by the read rate minus the growth rate |

All values come from memory, except a timestamp, which comes from one index row or, if it must be
exact, from one batch. Timestamps never change, so they are cached. So lag costs as much for a
stopped group as for a running one, and nothing for a group without requests.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from quafka_broker.groups.group import Group, Place
from quafka_broker.groups.read_rate import RateMark, ReadRates
from quafka_broker.groups.table import Committed, GroupEntry, Key
from quafka_broker.partitions.errors import OffsetGoneError, StorageError
from quafka_broker.sources.source import PartitionSource, ask_all, error_of
from quafka_broker.sources.sources import Sources
from quafka_broker.topics.topic import Topic
from quafka_loop.slices import Slices, in_slices
from quafka_proto.errors import Malformed

_PER_SLICE = 100  # partitions examined without yielding
_STAMPS = 50_000
_ASK_SECONDS = 1.0  # for the bounds of a source outside the log


@dataclass(frozen=True, slots=True)
class GroupPartitionLag:
    """The lag of a group in one partition.

    Attributes:
        committed: the last committed offset; None if there is none, and the rest is unknown.
        records: the number not yet consumed; None if the partition's source does not know.
        seconds: the age of the first of these; None if its timestamp is unknown.
        catch_up_seconds: time until none is left, at the present rates; None if that is unknown, or
            never.
        owner: the id of the member that reads the partition, or "".
        committed_at_ms, topic_id: set for an offset in another broker's topic.
    """

    topic: str
    partition: int
    log_start: int = -1
    high_watermark: int = -1
    committed: int | None = None
    records: int | None = None
    seconds: float | None = None
    catch_up_seconds: float | None = None
    owner: str = ""
    committed_at_ms: int = -1
    topic_id: bytes = b""


class _Stamp(NamedTuple):
    timestamp: int | None
    exact: bool


class Lags:
    """Computes the lag of groups. For one event loop."""

    def __init__(self, sources: Sources, find_topic: Callable[[int, str], Topic | None]) -> None:
        self._sources = sources
        self._find_topic = find_topic
        self._rates = ReadRates()
        self._stamps: OrderedDict[tuple[object, int], _Stamp] = OrderedDict()

    # --- read rates -------------------------------------------------------------------------

    def observe_commit(
        self, key: Key, group: Group | None, offsets: Mapping[Place, Committed]
    ) -> Generator[None, None, None]:
        """Record a group's commit for its read rates; one step for each offset."""
        by_hand = group is not None and group.has_no_reader
        for place, committed in offsets.items():
            yield
            if by_hand:  # its offsets were reset while it was not running
                self._rates.restart((key, place))
            elif self._rates.is_due((key, place), committed.at_ms, committed.offset):
                partition = self._partition(key, place)
                if partition is not None:
                    mark = RateMark(committed.at_ms, committed.offset, partition.high_watermark)
                    self._rates.record((key, place), mark)

    # --- lag --------------------------------------------------------------------------------

    async def of_group(
        self, key: Key, entry: GroupEntry, now_ms: int, *, exact: bool, elsewhere: bool = False
    ) -> list[GroupPartitionLag]:
        """The lag in every partition that the group reads or has committed in, by topic.

        Seconds are `exact` to the record, or else to its batch, which is much cheaper. With
        `elsewhere`, partitions of other brokers are included.
        """
        owners = entry.group.owners()
        found: list[GroupPartitionLag] = []
        slices = Slices(_PER_SLICE)
        for place in sorted({*entry.offsets, *owners}):
            await slices.done()
            partition = self._partition(key, place)
            owner, committed = owners.get(place, ""), entry.offsets.get(place)
            if committed is not None and isinstance(committed.incarnation, str):
                partition = None
            if partition is None:
                if elsewhere:
                    found.append(_elsewhere(place, committed, owner))
            elif committed is None:
                found.append(
                    GroupPartitionLag(
                        *place, partition.log_start, partition.high_watermark, owner=owner
                    )
                )
            else:
                lag = await self._lag(key, place, partition, committed, now_ms, exact=exact)
                if lag.records and entry.group.has_no_reader:
                    lag = replace(lag, catch_up_seconds=None)
                found.append(replace(lag, owner=owner))
        return found

    async def of_offsets(
        self, key: Key, offsets: dict[Place, Committed], now_ms: int
    ) -> list[GroupPartitionLag]:
        """The lag of a group that another broker coordinates, from its committed offsets.

        The read rate is known only after repeated requests.
        """
        await in_slices(self.observe_commit(key, None, offsets))
        found: list[GroupPartitionLag] = []
        slices = Slices(_PER_SLICE)
        for place, committed in offsets.items():
            await slices.done()
            partition = self._partition(key, place)
            if partition is None:
                found.append(GroupPartitionLag(*place))
            elif committed.offset < 0:
                found.append(
                    GroupPartitionLag(*place, partition.log_start, partition.high_watermark)
                )
            else:
                found.append(await self._lag(key, place, partition, committed, now_ms, exact=True))
        return found

    async def of_every_group(
        self, groups: Iterable[tuple[Key, GroupEntry]], now_ms: Callable[[], int]
    ) -> AsyncIterator[tuple[int, Group, list[GroupPartitionLag]]]:
        """The lag of each of these groups, with its org; seconds are exact to the batch.

        Cheap, and in slices, for metrics.
        """
        for key, entry in groups:
            yield key[0], entry.group, await self.of_group(key, entry, now_ms(), exact=False)
            await asyncio.sleep(0)

    async def _lag(
        self,
        key: Key,
        place: Place,
        partition: PartitionSource,
        committed: Committed,
        now_ms: int,
        *,
        exact: bool,
    ) -> GroupPartitionLag:
        if exact:
            await ask_all((partition,), _ASK_SECONDS)
        error = error_of(partition.unready())
        log_start, end = partition.log_start, partition.high_watermark
        position = max(committed.offset, log_start)
        records = None if error else await _records(partition, position)
        if records is None:
            return GroupPartitionLag(*place, log_start, end, committed.offset)
        seconds: float | None = 0.0
        catch_up: float | None = 0.0
        if records:
            last = RateMark(committed.at_ms, committed.offset, end)
            catch_up = self._rates.catch_up_seconds((key, place), records, last, now_ms)
            timestamp = await self._timestamp(partition, position, exact=exact)
            known = timestamp is not None and timestamp >= 0
            seconds = max(0, now_ms - timestamp) / 1000 if timestamp is not None and known else None
        return GroupPartitionLag(
            *place, log_start, end, committed.offset, records, seconds, catch_up,
        )  # fmt: skip

    def _partition(self, key: Key, place: Place) -> PartitionSource | None:
        """The partition, or None if it does not exist."""
        topic = self._find_topic(key[0], place[0])
        if topic is None or not topic.has(place[1]):
            return None
        return self._sources.partition(topic, place[1])

    async def _timestamp(
        self, partition: PartitionSource, offset: int, *, exact: bool
    ) -> int | None:
        where = (partition.id, offset)
        stamp = self._stamps.get(where)
        if stamp is None or exact > stamp.exact:
            try:
                timestamp = await partition.timestamp_of(offset, exact=exact)
            except (StorageError, Malformed, OffsetGoneError):
                return None
            stamp = self._stamps[where] = _Stamp(timestamp, exact)
            if len(self._stamps) > _STAMPS:
                self._stamps.popitem(last=False)
        self._stamps.move_to_end(where)
        return stamp.timestamp


async def _records(partition: PartitionSource, offset: int) -> int | None:
    try:
        return await partition.records_from(offset)
    except StorageError:
        return None


def _elsewhere(place: Place, committed: Committed | None, owner: str) -> GroupPartitionLag:
    if committed is None or not isinstance(committed.incarnation, str):
        return GroupPartitionLag(*place, owner=owner)
    return GroupPartitionLag(
        *place,
        committed=committed.offset,
        owner=owner,
        committed_at_ms=committed.at_ms,
        topic_id=bytes.fromhex(committed.incarnation),
    )
