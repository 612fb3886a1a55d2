"""Gateway and broker against lists: whatever is produced, deleted, fetched and restarted.

The reference knows nothing of bitmaps, segments or caches of sessions: a partition is a list of
batches and a start; a session is what its client has asked for and been told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import split_batches
from quafka_proto.schema.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quafka_proto.schema.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.joined import Joined
from tests.support.suites import examples

T = TypeVar("T")
PARTITIONS = 2
PLENTY = 1 << 20
LONG = 20_000
VERSIONS = {False: 12, True: 16}  # by names, by ids


@dataclass
class Batch:
    base: int
    size: int
    values: list[bytes]

    @property
    def end(self) -> int:
        return self.base + len(self.values)


@dataclass
class Log:
    """One partition."""

    start: int = 0
    batches: list[Batch] = field(default_factory=list[Batch])

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def at(self, part: float) -> int:
        """An offset: 0 is the start, 1 the end; beyond them it is out of range."""
        if part > 1:
            return self.end + 1
        return self.start - 1 if part < 0 else self.start + round(part * (self.end - self.start))

    def holds(self, offset: int) -> bool:
        return self.start <= offset <= self.end

    def within(self, offset: int) -> list[Batch]:
        """The readable records from an offset on."""
        return [batch for batch in self.batches if batch.end > offset] if self.holds(offset) else []


@dataclass(frozen=True)
class Topic:
    """One incarnation."""

    name: str
    uuid: bytes
    logs: tuple[Log, ...] = field(compare=False)


Place = tuple[str | bytes, int]  # a topic's name or id, and a partition


@dataclass(frozen=True)
class Want:
    offset: int
    max_bytes: int


@dataclass
class Session:
    """`told`: high watermark and log start of the last answer, None after an error.

    `passed_over`: how many times in a row it had records, but other partitions came first.
    """

    id: int
    by_ids: bool
    epoch: int = 1
    wants: dict[Place, Want] = field(default_factory=dict[Place, Want])
    told: dict[Place, tuple[int, int] | None] = field(
        default_factory=dict[Place, "tuple[int, int] | None"]
    )
    passed_over: dict[Place, int] = field(default_factory=dict[Place, int])


# A place of a log: 0 is its start, 1 its end; other values beyond them are out of range.
wanted = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.sampled_from([-1.0, 0, 0.3, 0.7, 1, 2]), st.sampled_from([0, 1, 200, PLENTY])),
    max_size=4,
)
Wanted = dict[tuple[str, int], tuple[float, int]]
limits = st.sampled_from([1, 150, 300, PLENTY])


class FetchModel(RuleBasedStateMachine):
    """Any sequence of produce, fetch, delete and restart."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.topics: dict[str, Topic] = {}
        self.sessions: list[Session] = []
        self.values = 0

        async def start() -> None:
            self.joined = Joined()
            await self.joined.start_broker()
            self.client, self.other = self.joined.connect(), self.joined.connect()

        self.run(start())
        for name in "ab":
            self.create(name)
            for partition in range(PARTITIONS):
                self.produce(name, partition, [2, 1], 10)
        everything: Wanted = {(name, n): (0, PLENTY) for name in "ab" for n in range(PARTITIONS)}
        for by_ids in (False, True):
            self.begin_with(everything, by_ids, PLENTY, None)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        if hasattr(self, "joined"):
            self.run(self.joined.stop_broker())
            self.loop.close()

    # --- changes ----------------------------------------------------------------------------

    def create(self, name: str) -> None:
        new = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        made = self.run(self.other.call(CreateTopicsRequest(topics=[new]), CreateTopicsResponse, 5))
        assert made.topics[0].error_code == 0
        named = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        described = self.run(self.other.call(named, MetadataResponse, 12)).topics[0]
        assert (described.error_code, len(described.partitions)) == (0, PARTITIONS)
        logs = tuple(Log() for _ in range(PARTITIONS))
        self.topics[name] = Topic(name, described.topic_id, logs)

    @rule(
        name=st.sampled_from("ab"),
        partition=st.integers(0, PARTITIONS - 1),
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        size=st.sampled_from([1, 100]),
    )
    def produce(self, name: str, partition: int, counts: list[int], size: int) -> None:
        for count in counts:
            values = [b"%d" % (self.values + n) * size for n in range(count)]
            self.values += count
            batch = build_batch([Record(0, 1_000, None, value, []) for value in values])
            data = PartitionProduceData(index=partition, records=batch)
            topic = TopicProduceData(name=name, partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
            answer = self.run(self.other.call(request, ProduceResponse, 9))
            produced = answer.responses[0].partition_responses[0]
            log = self.topics[name].logs[partition]
            assert (produced.error_code, produced.base_offset) == (0, log.end)
            log.batches.append(Batch(log.end, len(batch), values))

    @rule(
        name=st.sampled_from("ab"),
        partition=st.integers(0, PARTITIONS - 1),
        part=st.floats(0, 1),
    )
    def delete_records(self, name: str, partition: int, part: float) -> None:
        log = self.topics[name].logs[partition]
        offset = round(part * log.end)
        below = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[below])])
        answer = self.run(self.other.call(request, DeleteRecordsResponse, 2))
        assert answer.topics[0].partitions[0].error_code == 0
        log.start = max(log.start, offset)

    @rule(name=st.sampled_from("ab"))
    def delete_topic_and_create_it_again(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name])
        answer = self.run(self.other.call(request, DeleteTopicsResponse, 5))
        assert answer.responses[0].error_code == 0
        self.create(name)

    @rule()
    def restart_broker(self) -> None:
        async def restart() -> None:
            await self.joined.stop_broker()
            await self.joined.start_broker()

        self.run(restart())

    @rule()
    def restart_gateway(self) -> None:
        async def restart() -> None:
            self.joined.start_gateway()
            self.client, self.other = self.joined.connect(), self.joined.connect()

        self.run(restart())
        for session in self.sessions:
            request = self.request({}, session.by_ids, PLENTY, session.id, session.epoch)
            answer = self.fetch(request, session.by_ids)
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        self.sessions = []

    # --- fetches ----------------------------------------------------------------------------

    @rule(wants=wanted, by_ids=st.booleans(), max_bytes=limits)
    def fetch_without_a_session(self, wants: Wanted, by_ids: bool, max_bytes: int) -> None:
        asked = self.places(wants, by_ids)
        answer = self.fetch(self.request(asked, by_ids, max_bytes, 0, -1), by_ids)
        assert (answer.error_code, answer.session_id) == (0, 0)
        self.check_full(asked, answer, max_bytes)

    @rule(wants=wanted, by_ids=st.booleans(), max_bytes=limits, data=st.data())
    def begin_a_session(
        self,
        wants: Wanted,
        by_ids: bool,
        max_bytes: int,
        data: st.DataObject,
    ) -> None:
        """With nothing, or in the place of an older one."""
        old = data.draw(st.sampled_from([None, *self.sessions])) if self.sessions else None
        if old is not None:
            self.sessions.remove(old)
        self.begin_with(wants, by_ids, max_bytes, old)

    def begin_with(self, wants: Wanted, by_ids: bool, max_bytes: int, old: Session | None) -> None:
        asked = self.places(wants, by_ids)
        request = self.request(asked, by_ids, max_bytes, old.id if old else 0, 0)
        answer = self.fetch(request, by_ids)
        assert answer.error_code == 0
        assert (answer.session_id > 0) == bool(asked)
        found = self.check_full(asked, answer, max_bytes)
        if asked:
            session = Session(answer.session_id, by_ids, wants=asked)
            for place, partition in found.items():
                self.note(session, place, partition)
            self.sessions.append(session)

    @invariant()
    def every_session_goes_on(self) -> None:
        """After whatever has happened, and with room for one batch or for all."""
        for session in list(getattr(self, "sessions", ())):
            max_bytes = 1 if session.epoch % 8 else PLENTY
            self.go_on(session, {}, [], max_bytes)

    @precondition(lambda self: self.sessions)
    @rule(changes=wanted, forgets=wanted, max_bytes=limits, data=st.data())
    def fetch_in_a_session(
        self,
        changes: Wanted,
        forgets: Wanted,
        max_bytes: int,
        data: st.DataObject,
    ) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        changed = self.places(changes, session.by_ids)
        self.go_on(session, changed, list(self.places(forgets, session.by_ids)), max_bytes)

    def go_on(
        self, session: Session, changed: dict[Place, Want], forgotten: list[Place], max_bytes: int
    ) -> None:
        request = self.request(
            changed, session.by_ids, max_bytes, session.id, session.epoch, forgotten
        )
        answer = self.fetch(request, session.by_ids)
        self.ask(session, changed, forgotten)
        assert answer.error_code == 0
        if not session.wants:
            assert (answer.session_id, answer.responses) == (0, [])
            self.sessions.remove(session)
            return
        assert answer.session_id == session.id
        self.check_incremental(session, answer, max_bytes)

    @precondition(lambda self: self.sessions)
    @rule(ahead=st.sampled_from([-1, 1, 7]), data=st.data())
    def fetch_in_a_wrong_epoch(self, ahead: int, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        if session.epoch + ahead <= 0:
            return
        request = self.request({}, session.by_ids, PLENTY, session.id, session.epoch + ahead)
        answer = self.fetch(request, session.by_ids)
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def close_a_session(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.sessions))
        self.sessions.remove(session)
        for epoch, error in ((-1, 0), (session.epoch, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)):
            request = self.request({}, session.by_ids, PLENTY, session.id, epoch)
            answer = self.fetch(request, session.by_ids)
            assert (answer.error_code, answer.session_id) == (error, 0)

    @rule(
        name=st.sampled_from("ab"),
        partition=st.integers(0, PARTITIONS - 1),
        by_ids=st.booleans(),
        event=st.sampled_from(["append", "delete records", "delete topic"]),
    )
    def an_event_wakes_a_parked_fetch(
        self, name: str, partition: int, by_ids: bool, event: str
    ) -> None:
        ends: Wanted = {(topic, n): (1.0, PLENTY) for topic in "ab" for n in range(PARTITIONS)}
        log = self.topics[name].logs[partition]
        if event == "delete records":
            if log.start >= log.end:
                return
            ends[name, partition] = (0, PLENTY)
        asked = self.places(ends, by_ids)
        request = self.request(asked, by_ids, PLENTY, 0, -1)
        request.max_wait_ms, request.min_bytes = LONG, 1 if event == "append" else 1 << 30
        self.run(self.client.send(request, VERSIONS[by_ids]))
        if event == "append":
            self.produce(name, partition, [1], 1)
        elif event == "delete records":
            self.delete_records(name, partition, 1.0)
        else:
            self.delete_topic_and_create_it_again(name)
        answer = self.run(self.client.receive(FetchResponse, VERSIONS[by_ids]))
        assert answer.error_code == 0
        if event != "delete topic":  # the topic was deleted: any answer will do
            self.check_full(asked, answer, PLENTY)

    # --- requests ---------------------------------------------------------------------------

    def places(self, wants: Wanted, by_ids: bool) -> dict[Place, Want]:
        found: dict[Place, Want] = {}
        for (name, partition), (at, max_bytes) in wants.items():
            topic = self.topics[name]
            place = topic.uuid if by_ids else name, partition
            found[place] = Want(topic.logs[partition].at(at), max_bytes)
        return found

    def request(
        self,
        wants: dict[Place, Want],
        by_ids: bool,
        max_bytes: int,
        session_id: int,
        epoch: int,
        forgotten: list[Place] | None = None,
    ) -> FetchRequest:
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, session_id=session_id,
            session_epoch=epoch,
        )  # fmt: skip
        for (topic, partition), want in wants.items():
            part = FetchPartition(
                partition=partition,
                fetch_offset=want.offset,
                partition_max_bytes=want.max_bytes,
            )
            entry = FetchTopic(partitions=[part])
            setattr(entry, "topic_id" if by_ids else "topic", topic)
            request.topics.append(entry)
        for topic, partition in forgotten or ():
            gone = ForgottenTopic(partitions=[partition])
            setattr(gone, "topic_id" if by_ids else "topic", topic)
            request.forgotten_topics_data.append(gone)
        return request

    def fetch(self, request: FetchRequest, by_ids: bool) -> FetchResponse:
        return self.run(self.client.call(request, FetchResponse, VERSIONS[by_ids]))

    # --- answers ----------------------------------------------------------------------------

    def log(self, place: Place) -> Log | None:
        for topic in self.topics.values():
            if place[0] in (topic.name, topic.uuid):
                return topic.logs[place[1]]
        return None

    def check_full(
        self, wants: dict[Place, Want], answer: FetchResponse, max_bytes: int
    ) -> dict[Place, PartitionData]:
        """All requested partitions, in their order, with as much as the limits allow."""
        found = by_place(answer)
        assert list(found) == list(wants)
        left, first = max_bytes, True
        for place, want in wants.items():
            expected = self.readable(place, want, left, first)
            assert self.check_one(place, want, found[place]) == expected
            size = sum(batch.size for batch in expected)
            left, first = left - size, first and not size
        return found

    def check_incremental(self, session: Session, answer: FetchResponse, max_bytes: int) -> None:
        """All changes and nothing else; a partition is always served, and all have their turn."""
        found = by_place(answer)
        assert found.keys() <= session.wants.keys()
        sizes = []
        for place, partition in found.items():
            log = self.log(place)
            batches = self.check_one(place, session.wants[place], partition)
            sizes += [batch.size for batch in batches]
            now = None if log is None else (log.end, log.start)
            assert batches or partition.error_code or now != session.told[place]
            self.note(session, place, partition)
        assert sum(sizes) <= max_bytes or len(sizes) == 1
        served = {place for place, partition in found.items() if partition.records}
        for place, want in session.wants.items():
            log = self.log(place)
            assert place in found or (log is not None and log.holds(want.offset))
            assert place in found or log is None or session.told[place] == (log.end, log.start)
            waits = bool(log and log.within(want.offset)) and place not in served
            session.passed_over[place] = session.passed_over.get(place, 0) + 1 if waits else 0
            # One that takes less than a whole batch is served when it is first, once around.
            assert session.passed_over[place] <= len(session.wants)

    def readable(self, place: Place, want: Want, left: int, first: bool) -> list[Batch]:
        """KIP-74: whole batches up to the limits, but one in any case if it is the first."""
        log = self.log(place)
        limit = max(0, min(want.max_bytes, left))
        batches: list[Batch] = []
        for batch in log.within(want.offset) if log is not None else ():
            if sum(b.size for b in batches) + batch.size > limit and (batches or not first):
                break
            batches.append(batch)
        return batches

    def check_one(self, place: Place, want: Want, found: PartitionData) -> list[Batch]:
        """A partition's error, watermarks and records against the list; the batches it had."""
        log = self.log(place)
        if log is None:
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            return []
        assert (found.high_watermark, found.log_start_offset) == (log.end, log.start)
        assert found.last_stable_offset == log.end
        in_range = log.holds(want.offset)
        assert found.error_code == (0 if in_range else ErrorCode.OFFSET_OUT_OF_RANGE)
        assert found.records is not None
        assert not isinstance(found.records, list)
        batches = [
            Batch(header.base_offset, header.length, [r.value or b"" for r in iter_records(data)])
            for header, data in (split_batches(found.records) if len(found.records) else [])
        ]
        assert batches == log.within(want.offset)[: len(batches)]
        return batches

    # --- sessions ---------------------------------------------------------------------------

    def ask(self, session: Session, changed: dict[Place, Want], forgotten: list[Place]) -> None:
        session.epoch += 1
        session.wants.update(changed)
        known = len(session.wants)
        for place in forgotten:
            session.wants.pop(place, None)
            session.told.pop(place, None)
            session.passed_over.pop(place, None)
        fewer = known - len(session.wants)
        for place, times in session.passed_over.items():
            # The bound falls with the partitions; those that came first may be the forgotten ones.
            session.passed_over[place] = max(0, times - fewer)
        for place in session.wants:
            session.told.setdefault(place, None)

    def note(self, session: Session, place: Place, partition: PartitionData) -> None:
        failed = partition.error_code != 0
        now = (partition.high_watermark, partition.log_start_offset)
        session.told[place] = None if failed else now


def by_place(answer: FetchResponse) -> dict[Place, PartitionData]:
    found: dict[Place, PartitionData] = {}
    for topic in answer.responses:
        for partition in topic.partitions:
            place = topic.topic or topic.topic_id, partition.partition_index
            assert place not in found
            found[place] = partition
    return found


FetchModel.TestCase.settings = examples(60, stateful_step_count=30)
TestFetchModel = FetchModel.TestCase
