"""Reads of assigned partitions: fetches, with or without a session (KIP-227), and positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quafka_proto.errors import ErrorCode as E
from quafka_proto.record_codec import iter_records
from quafka_proto.schema.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.sim.clients.answers import UNKNOWN_TOPIC, name_of, refused
from tests.sim.clients.job import Job, Place
from tests.sim.clients.topics import Topic, Topics
from tests.sim.clients.wire import Link, LostError, Wire
from tests.support.isolated_reader import visible_batches

UNCOMMITTED, COMMITTED = "read_uncommitted", "read_committed"
ISOLATIONS = (UNCOMMITTED, COMMITTED)
EARLIEST, LATEST = -2, -1
_WAIT_MS = 500
_PARTITION_BYTES = 1 << 18
_BYTES = 1 << 20
_NO_SESSION = 0
_SESSION_ERRORS = frozenset(
    {
        E.FETCH_SESSION_ID_NOT_FOUND,
        E.INVALID_FETCH_SESSION_EPOCH,
        E.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

Found = list[tuple[int, str]]
"""Offset and value of records."""


async def list_offset(job: Job, wire: Wire, place: Place, at: str) -> int | None:
    """The "earliest", "latest" or "latest_committed" offset; None: an error. Raises LostError."""
    call = job.call("list_offsets", topic=place[0], partition=place[1], at=at)
    request = ListOffsetsRequest(
        isolation_level=int(at == "latest_committed"),
        topics=[
            ListOffsetsTopic(
                name=place[0],
                partitions=[
                    ListOffsetsPartition(
                        partition_index=place[1],
                        timestamp=EARLIEST if at == "earliest" else LATEST,
                    )
                ],
            )
        ],
        timeout_ms=5_000,
    )
    try:
        answer = await wire.call(request, ListOffsetsResponse)
    except LostError as e:
        job.history.unknown(call, str(e))
        raise
    (part,) = answer.topics[0].partitions
    if part.error_code:
        refused(job, call, part.error_code)
        return None
    job.history.ok(call, offset=part.offset, gateway=wire.gateway)
    return part.offset


class Fetcher:
    """The positions of a reader, and fetches from there on.

    Attributes:
        positions: of the partitions that are read; whoever owns the fetcher may change it.
        last: the last answer of each partition.
    """

    def __init__(
        self,
        job: Job,
        link: Link,
        topics: Topics,
        isolation: str,
        *,
        sessions: bool = False,
        reset_to: str = "earliest",
    ) -> None:
        self.positions: dict[Place, int] = {}
        self.last: dict[Place, PartitionData] = {}
        self.isolation = isolation
        self.fields: dict[str, Any] = {}
        """Further fields of its reads in the history."""
        self._job = job
        self._link = link
        self._topics = topics
        self._sessions = sessions
        self._reset_to = reset_to
        self._wire: Wire | None = None
        self._session = _NO_SESSION
        self._epoch = 0
        self._in_session: dict[Place, tuple[Topic, int]] = {}

    async def poll(self, wait_ms: int = _WAIT_MS) -> dict[Place, Found]:
        """One fetch of all partitions; the records that it has returned. Raises LostError."""
        wire = await self._link.ready()
        if wire is not self._wire:
            self._wire = wire
            self._end_session()
        topics = await self._topics.find(*dict(self.positions.keys()))
        wanted = {
            place: (topics[place[0]], position)
            for place, position in self.positions.items()
            if place[0] in topics
        }
        if not wanted:
            return {}
        calls = {place: self._call(wire, place, wanted[place][1]) for place in wanted}
        try:
            answer = await wire.call(self._request(wanted, wait_ms), FetchResponse)
        except LostError as e:
            for call in calls.values():
                self._job.history.unknown(call, str(e))
            raise
        if answer.error_code:
            self._end_session()
            for call in calls.values():
                refused(self._job, call, answer.error_code)
            if answer.error_code not in _SESSION_ERRORS:
                await self._link.back_off()
            return {}
        self._continue_session(answer, wanted)
        return await self._take(wire, answer, wanted, calls)

    async def start(self, places: Iterable[Place], at: str | None = None) -> None:
        """Begin with some partitions where a reader without offsets begins. Raises LostError."""
        wire = await self._link.ready()
        for place in places:
            found = await list_offset(self._job, wire, place, at or self._reset_to)
            if found is not None:
                self.positions[place] = found

    def _call(self, wire: Wire, place: Place, position: int) -> int:
        return self._job.call(
            "read",
            topic=place[0],
            partition=place[1],
            position=position,
            isolation=self.isolation,
            gateway=wire.gateway,
            **self.fields,
        )

    # --- requests and sessions --------------------------------------------------------------

    def _request(self, wanted: dict[Place, tuple[Topic, int]], wait_ms: int) -> FetchRequest:
        asked = wanted
        gone: list[tuple[Place, Topic]] = []
        if self._session != _NO_SESSION:
            asked = {p: w for p, w in wanted.items() if self._in_session.get(p) != w}
            gone = [
                (place, topic)
                for place, (topic, _) in self._in_session.items()
                if place not in wanted
            ]
        topics: dict[bytes, FetchTopic] = {}
        for (name, partition), (topic, position) in asked.items():
            if topic.id not in topics:
                topics[topic.id] = FetchTopic(topic=name, topic_id=topic.id)
            topics[topic.id].partitions.append(
                FetchPartition(
                    partition=partition,
                    fetch_offset=position,
                    partition_max_bytes=_PARTITION_BYTES,
                )
            )
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_BYTES,
            isolation_level=int(self.isolation == COMMITTED),
            session_id=self._session,
            session_epoch=self._epoch if self._sessions else -1,
            topics=list(topics.values()),
            forgotten_topics_data=[
                ForgottenTopic(topic=place[0], topic_id=topic.id, partitions=[place[1]])
                for place, topic in gone
            ],
        )

    def _continue_session(
        self, answer: FetchResponse, wanted: dict[Place, tuple[Topic, int]]
    ) -> None:
        if self._sessions and answer.session_id != _NO_SESSION:
            self._session = answer.session_id
            self._epoch += 1
            self._in_session = wanted
        else:
            self._end_session()

    def _end_session(self) -> None:
        self._session, self._epoch = _NO_SESSION, 0
        self._in_session = {}

    # --- answers ----------------------------------------------------------------------------

    async def _take(
        self,
        wire: Wire,
        answer: FetchResponse,
        wanted: dict[Place, tuple[Topic, int]],
        calls: dict[Place, int],
    ) -> dict[Place, Found]:
        found: dict[Place, Found] = {}
        lost: list[Place] = []
        for topic in answer.responses:
            name = topic.topic or self._topics.names[topic.topic_id]
            for part in topic.partitions:
                place = name, part.partition_index
                if (call := calls.pop(place, None)) is None:
                    continue  # a session's answer with a partition that was just forgotten
                records = self._part(call, place, wanted[place], part)
                if records:
                    found[place] = records
                if part.error_code == E.OFFSET_OUT_OF_RANGE and place in self.positions:
                    lost.append(place)
        for place, call in calls.items():  # a session's answer leaves out what has not changed
            of, position = wanted[place]
            self._job.history.ok(call, records=[], next=position, topic_id=of.text)
        for place in lost:
            offset = await list_offset(self._job, wire, place, self._reset_to)
            if offset is not None and place in self.positions:
                self.positions[place] = offset
        return found

    def _part(
        self, call: int, place: Place, wanted: tuple[Topic, int], part: PartitionData
    ) -> Found:
        topic, position = wanted
        marks = {
            "high_watermark": _known(part.high_watermark),
            "last_stable": _known(part.last_stable_offset),
            "log_start": _known(part.log_start_offset),
            "topic_id": topic.text,
        }
        if part.error_code:
            if part.error_code == E.OFFSET_OUT_OF_RANGE:
                self._job.history.fail(call, name_of(part.error_code), **marks)
            else:
                refused(self._job, call, part.error_code, topic_id=topic.text)
            if part.error_code in UNKNOWN_TOPIC:
                self._topics.forget(place[0])
                self._end_session()
            return []
        records, after = self._decoded(part, position)
        self._job.history.ok(call, records=records, next=after, **marks)
        self.last[place] = part
        if self.positions.get(place) == position:
            self.positions[place] = after
        return records

    def _decoded(self, part: PartitionData, position: int) -> tuple[Found, int]:
        found: Found = []
        after = position
        for header, batch in visible_batches(part, committed=self.isolation == COMMITTED):
            if batch is not None:
                found += [
                    (record.offset, (record.value or b"").decode())
                    for record in iter_records(batch)
                    if record.offset >= position
                ]
            after = max(after, header.last_offset + 1)
        return found, after


def _known(mark: int) -> int | None:
    return mark if mark >= 0 else None
