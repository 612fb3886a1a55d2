"""Sequences of requests whose answers depend on state: transactions, groups, topics, records."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from quafka_proto.message import Message
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema import response_type
from quafka_proto.schema.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from quafka_proto.schema.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from quafka_proto.schema.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from quafka_proto.schema.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from quafka_proto.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from quafka_proto.schema.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.differences.observed import Observed, observe
from tests.support.raw_client import RawClient

_TIMEOUT_MS = 30_000
_LATER_SECONDS = 60.0
_AGAIN = {6, 14, 15, 16, 51}
"""A leader or coordinator that loads, is not there yet or is busy: clients ask again."""


class Server:
    """One of the two, and what it has answered."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self.observed: Observed = {}

    def ask(self, what: str, request: Message, version: int) -> Message:
        """Send a request, and remember the answer under a name."""
        answer = self.answer(request, version)
        for path, value in observe(answer).items():
            self.observed[f"{what}: {path}"] = value
        return answer

    def answer(self, request: Message, version: int) -> Message:
        """Send a request, again while a coordinator asks for it."""
        kind = response_type(request.api_key)
        assert kind is not None
        until = time.monotonic() + _LATER_SECONDS
        while True:
            answer = self._client.call(request, kind, version)
            codes = {v for k, v in observe(answer).items() if k.endswith("error_code")}
            if not codes & _AGAIN or time.monotonic() > until:
                return answer
            time.sleep(0.1)

    def prepare(self) -> None:
        """Wait for the coordinators: Kafka makes their topics when it is asked for them."""
        for key_type in range(3):
            key = "group:AAAAAAAAAAAAAAAAAAAAAA:0" if key_type == 2 else "name"
            self.answer(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)

    def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic."""
        self.answer(_create(name, partitions, **configs), 5)


Play = Callable[[Server], None]
PLAYS: dict[str, Play] = {}


def play(name: str) -> Callable[[Play], Play]:
    """Declare a play."""

    def declare(function: Play) -> Play:
        assert name not in PLAYS
        PLAYS[name] = function
        return function

    return declare


# --- requests -------------------------------------------------------------------------------------


def _create(name: str, partitions: int = 1, **configs: str) -> CreateTopicsRequest:
    its = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    topic = CreatableTopic(name, num_partitions=partitions, replication_factor=1, configs=its)
    return CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)


def _batch(*, producer: Producer | None = None, sequence: int = 0, size: int = 10) -> bytes:
    records = [Record(0, 1_000, None, bytes(size), [])]
    if producer is None:
        return bytes(build_batch(records))
    return bytes(
        build_batch(
            records,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=bool(producer.name),
        )
    )


def _produce(
    topic: str, batch: bytes, partition: int = 0, acks: int = -1, name: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        transactional_id=name,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def _commit(group: str, topic: str, **options: Any) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[part])]
    return OffsetCommitRequest(group_id=group, topics=topics, **options)


# --- transactions ---------------------------------------------------------------------------------


class Producer(NamedTuple):
    """What InitProducerId has given."""

    name: str
    id: int
    epoch: int


def _begin(server: Server, name: str) -> Producer:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS)
    answer = server.answer(request, 4)
    assert isinstance(answer, InitProducerIdResponse)
    assert answer.error_code == 0, answer
    return Producer(name, answer.producer_id, answer.producer_epoch)


def _end(producer: Producer, *, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(*producer, committed=commit)


def _add(producer: Producer, topic: str, *partitions: int) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.name,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [*partitions])],
    )


@play("the end of transactions without a write")
def ends_of_nothing(server: Server) -> None:
    for version in (0, 1, 2, 3, 4, 5):
        for commit in (True, False):
            producer = _begin(server, f"empty-{version}-{commit}")
            what = f"EndTxn {version}, commit {commit}"
            server.ask(what, _end(producer, commit=commit), version)
            server.ask(f"{what}, again", _end(producer, commit=commit), version)
            server.ask(f"{what}, other epoch", _end(producer._replace(epoch=7), commit=commit),
                       version)  # fmt: skip
            server.ask(f"{what}, other id", _end(producer._replace(id=77_777), commit=commit),
                       version)  # fmt: skip


@play("the end of transactions, twice, and the other way")
def ends(server: Server) -> None:
    server.topic("ended")
    for version in (2, 4):
        for commit in (True, False):
            producer = _begin(server, f"full-{version}-{commit}")
            server.ask(f"add before {version} {commit}", _add(producer, "ended", 0), 3)
            batch = _batch(producer=producer)
            server.ask(f"produce before {version} {commit}",
                       _produce("ended", batch, name=producer.name), 9)  # fmt: skip
            for again in ("", ", again"):
                what = f"EndTxn {version}, commit {commit}{again}"
                server.ask(what, _end(producer, commit=commit), version)
            what = f"EndTxn {version}, commit {not commit}, after the other"
            server.ask(what, _end(producer, commit=not commit), version)


@play("transactions whose only write was refused")
def refused(server: Server) -> None:
    server.topic("refusing")
    for version in (3, 4, 5):
        producer = _begin(server, f"refused-{version}")
        server.ask(f"add unknown topic {version}", _add(producer, "no-such-topic", 0), 3)
        server.ask(f"EndTxn {version} after it", _end(producer, commit=True), version)
    producer = _begin(server, "refused-mixed")
    request = _add(producer, "refusing", 0, 5)
    server.ask("add a known and an unknown partition", request, 3)
    producer = _begin(server, "refused-produce")
    batch = _batch(producer=producer)
    server.ask("Produce 12 to no partition",
               _produce("refusing", batch, 9, name=producer.name), 12)  # fmt: skip
    server.ask("EndTxn 5 after that", _end(producer, commit=True), 5)
    producer = _begin(server, "not-added")
    batch = _batch(producer=producer)
    server.ask("Produce 11 without AddPartitionsToTxn",
               _produce("refusing", batch, name=producer.name), 11)  # fmt: skip


@play("offsets in transactions")
def transactional_offsets(server: Server) -> None:
    server.topic("offsets")
    part = TxnOffsetCommitRequestPartition(0, 5, committed_metadata="")
    topics = [TxnOffsetCommitRequestTopic("offsets", [part])]
    producer = _begin(server, "offsets")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id="txn-group",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=topics,
    )
    server.ask("TxnOffsetCommit 4 without AddOffsetsToTxn", request, 4)
    adding = AddOffsetsToTxnRequest(*producer, "txn-group")
    server.ask("AddOffsetsToTxn", adding, 3)
    server.ask("AddOffsetsToTxn, empty group", AddOffsetsToTxnRequest(*producer, ""), 3)
    server.ask("TxnOffsetCommit", request, 3)
    server.ask("EndTxn", _end(producer, commit=True), 3)


@play("InitProducerId")
def init_producer_id(server: Server) -> None:
    for name, timeout, version in (
        (None, -1, 0), (None, 0, 4), ("", 1_000, 4), ("named", 0, 4), ("named", -1, 4),
        ("named", 2_000_000_000, 4), ("named", 1_000, 0), ("named", 1_000, 3),
    ):  # fmt: skip
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout)
        server.ask(f"{name!r}, {timeout} ms, version {version}", request, version)
    for producer_id, epoch in ((-1, 3), (5, -1), (123_456, 3)):
        request = InitProducerIdRequest(
            transactional_id="named",
            transaction_timeout_ms=1_000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        server.ask(f"id {producer_id}, epoch {epoch}", request, 4)


# --- groups ---------------------------------------------------------------------------------------


def _subscription(version: int, *topics: str, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", version, len(topics)) + names + rest


_NONE_OWNED = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@play("the metadata of classic members")
def subscriptions(server: Server) -> None:
    server.topic("subscribed")
    for name, metadata in {
        "empty": b"",
        "version 0": _subscription(0, "subscribed"),
        "version 1": _subscription(1, "subscribed", rest=_NONE_OWNED),
        "version 1 without owned partitions": _subscription(1, "subscribed"),
        "version -1": _subscription(-1, "subscribed"),
        "version 32767": _subscription(
            32_767, "subscribed", rest=_NONE_OWNED + b"\xff\xff\xff\xff" + b"\x00\x00"
        ),
        "cut short": _subscription(0, "subscribed", rest=b"\x00\x00\x00\x09ab"),
    }.items():
        request = JoinGroupRequest(
            group_id=f"metadata of {name}",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", metadata)],
        )
        server.ask(f"{name}: JoinGroup", request, 3)


@play("a classic group")
def classic_group(server: Server) -> None:
    server.topic("classic")

    def join(**options: Any) -> JoinGroupRequest:
        values: dict[str, Any] = {
            "group_id": "classic",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol("range", _subscription(0, "classic"))],
        }
        return JoinGroupRequest(**{**values, **options})

    server.ask("session of 1 ms", join(session_timeout_ms=1), 3)
    server.ask("session of an hour", join(session_timeout_ms=36_000_000), 3)
    server.ask("no group", join(group_id=""), 3)
    server.ask("no protocols", join(protocols=[]), 3)
    server.ask("no type", join(protocol_type=""), 3)
    server.ask("an unknown member", join(member_id="nobody"), 3)
    server.ask("version 4 asks for an id", join(), 4)
    answer = server.answer(join(), 3)
    assert isinstance(answer, JoinGroupResponse)
    member: dict[str, Any] = {"group_id": "classic", "generation_id": answer.generation_id,
              "member_id": answer.member_id}  # fmt: skip
    server.ask("other protocol type", join(protocol_type="connect"), 3)
    server.ask("other protocol", join(protocols=[JoinGroupRequestProtocol("x", b"")]), 3)
    server.ask("heartbeat before SyncGroup", HeartbeatRequest(**member), 3)
    server.ask("commit before SyncGroup", _commit(
        "classic", "classic", member_id=answer.member_id,
        generation_id_or_member_epoch=answer.generation_id,
    ), 7)  # fmt: skip
    server.ask("SyncGroup 5 without protocol", SyncGroupRequest(**member), 5)
    server.ask("SyncGroup of another generation", SyncGroupRequest(**member | {
        "generation_id": 77}), 3)  # fmt: skip
    server.ask("SyncGroup", SyncGroupRequest(**member), 3)
    server.ask("heartbeat", HeartbeatRequest(**member), 3)
    server.ask("heartbeat of another generation", HeartbeatRequest(**member | {
        "generation_id": 77}), 3)  # fmt: skip
    server.ask("heartbeat of nobody", HeartbeatRequest(**member | {"member_id": "x"}), 3)
    server.ask("commit", _commit(
        "classic", "classic", member_id=answer.member_id,
        generation_id_or_member_epoch=answer.generation_id,
    ), 7)  # fmt: skip
    server.ask("commit from outside", _commit("classic", "classic"), 7)
    server.ask("commit of nobody", _commit(
        "classic", "classic", member_id="x", generation_id_or_member_epoch=1), 7)  # fmt: skip
    server.ask("delete while it has members", DeleteGroupsRequest(["classic"]), 2)
    server.ask("described as a group of KIP-848", ConsumerGroupDescribeRequest(["classic"]), 0)
    server.ask("joined as a group of KIP-848", ConsumerGroupHeartbeatRequest(
        group_id="classic", member_id="a" * 22, member_epoch=0, rebalance_timeout_ms=5_000,
        subscribed_topic_names=["classic"], topic_partitions=[]), 0)  # fmt: skip
    server.ask("leave of nobody", LeaveGroupRequest("classic", "x"), 1)
    server.ask("leave", LeaveGroupRequest("classic", answer.member_id), 1)
    server.ask("delete", DeleteGroupsRequest(["classic", "never"]), 2)
    server.ask("describe what is gone", DescribeGroupsRequest(["classic"]), 5)
    server.ask("describe what is gone, 6", DescribeGroupsRequest(["classic"]), 6)


@play("offsets from outside of a group")
def outside(server: Server) -> None:
    server.topic("outside")
    sorts: dict[str, dict[str, Any]] = {
        "simple": {},
        "a member id": {"member_id": "mine"},
        "a member id, again": {"member_id": "mine"},
        "a generation": {"generation_id_or_member_epoch": 3, "member_id": "mine"},
        "generation 0": {"generation_id_or_member_epoch": 0},
        "an instance": {"group_instance_id": "static"},
    }
    for what, options in sorts.items():
        server.ask(f"commit, {what}", _commit("outside", "outside", **options), 7)
    server.ask("commit, no such topic", _commit("outside", "never"), 7)
    server.ask("commit, no group", _commit("", "outside"), 7)
    asked = [OffsetFetchRequestTopic("outside", [0, 7]), OffsetFetchRequestTopic("never", [0])]
    for version in (1, 5, 7):
        request = OffsetFetchRequest(group_id="outside", topics=asked)
        server.ask(f"OffsetFetch {version}", request, version)
        request = OffsetFetchRequest(group_id="nobody", topics=asked)
        server.ask(f"OffsetFetch {version} of no group", request, version)
    server.ask("all offsets", OffsetFetchRequest(group_id="outside", topics=None), 5)


@play("a group of KIP-848")
def consumer_group(server: Server) -> None:
    server.topic("modern")

    def beat(**options: Any) -> ConsumerGroupHeartbeatRequest:
        values: dict[str, Any] = {
            "group_id": "modern", "member_id": "m" * 22, "member_epoch": 0,
            "rebalance_timeout_ms": 5_000, "subscribed_topic_names": ["modern"],
            "topic_partitions": [],
        }  # fmt: skip
        return ConsumerGroupHeartbeatRequest(**{**values, **options})

    server.ask("no group", beat(group_id=""), 0)
    server.ask("no member id", beat(member_id=""), 1)
    server.ask("no subscription", beat(subscribed_topic_names=None), 0)
    server.ask("an epoch of nobody", beat(member_epoch=5), 0)
    server.ask("no rebalance timeout", beat(rebalance_timeout_ms=-1), 0)
    server.ask("an unknown assignor", beat(server_assignor="best"), 0)
    server.ask("the group has not begun", ConsumerGroupDescribeRequest(["modern"]), 0)
    server.ask("join", beat(), 0)
    server.ask("a wrong epoch", beat(member_epoch=77), 0)
    server.ask("a classic member", JoinGroupRequest(
        group_id="modern", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
        protocol_type="other", protocols=[JoinGroupRequestProtocol("range", b"")]), 3)  # fmt: skip
    server.ask("described as a classic group", DescribeGroupsRequest(["modern"]), 5)
    server.ask("described as a classic group, 6", DescribeGroupsRequest(["modern"]), 6)
    server.ask("commit with a wrong epoch", _commit(
        "modern", "modern", member_id="m" * 22, generation_id_or_member_epoch=77), 9)  # fmt: skip
    server.ask("commit from outside", _commit("modern", "modern"), 9)
    server.ask("delete while it has members", DeleteGroupsRequest(["modern"]), 2)
    server.ask("leave", beat(member_epoch=-1), 0)
    server.ask("leave again", beat(member_epoch=-1), 0)
    server.ask("delete", DeleteGroupsRequest(["modern"]), 2)


# --- topics and configs ---------------------------------------------------------------------------


@play("names and numbers of topics")
def topics(server: Server) -> None:
    for name in ("fine", "fine", "", ".", "..", "a" * 250, "two words", "col_lides", "col.lides"):
        server.ask(f"create {name[:12]!r}", _create(name), 5)
    for count in (0, -2, -1, 2_000_000_000):
        server.ask(f"{count} partitions", _create(f"count{count}", count), 5)
    twice = CreateTopicsRequest(topics=[CreatableTopic("twice", 1, 1)] * 2, timeout_ms=5_000)
    server.ask("named twice", twice, 5)
    server.ask("three replicas", CreateTopicsRequest(
        topics=[CreatableTopic("three", 1, 3)], timeout_ms=5_000), 5)  # fmt: skip
    for config, value in (
        ("cleanup_policy", "shred"), ("retention_ms", "soon"), ("retention_ms", "-2"),
        ("no_such_config", "1"), ("min_insync_replicas", "0"), ("compression_type", "rar"),
        ("segment_bytes", "1"), ("message_timestamp_type", "Never"),
    ):  # fmt: skip
        request = _create(f"with-{config}-{value}", 1, **{config: value})
        server.ask(f"{config}={value}", request, 5)
    for count in (1, 0, 2):
        growth = CreatePartitionsRequest([CreatePartitionsTopic("fine", count, None)], 5_000)
        server.ask(f"grow to {count}", growth, 3)
    growth = CreatePartitionsRequest([CreatePartitionsTopic("never", 3, None)], 5_000)
    server.ask("grow what is not there", growth, 3)
    delete = DeleteTopicsRequest(topic_names=["fine", "fine", "never"], timeout_ms=5_000)
    server.ask("delete, one of them twice", delete, 5)


@play("configs that change")
def configs(server: Server) -> None:
    server.topic("changing")
    for kind, resource, name, operation, value in (
        (2, "changing", "retention.ms", 0, "1000"), (2, "changing", "retention.ms", 0, "soon"),
        (2, "changing", "retention.ms", 2, "1"), (2, "changing", "cleanup.policy", 2, "compact"),
        (2, "changing", "retention.ms", 7, "1"), (2, "changing", "nothing", 0, "1"),
        (2, "changing", "nothing", 1, None), (2, "never", "retention.ms", 0, "1"),
        (4, "", "num.partitions", 0, "5"), (4, "77", "log.retention.ms", 0, "5"),
        (32, "group", "consumer.session.timeout.ms", 0, "1"),
        (32, "group", "consumer.session.timeout.ms", 0, "50000"),
        (32, "group", "nothing", 0, "1"), (1, "x", "nothing", 0, "1"),
    ):  # fmt: skip
        change = IncrementalAlterableConfig(name, operation, value)
        request = IncrementalAlterConfigsRequest(
            [IncrementalAlterConfigsResource(kind, resource, [change])]
        )
        what = f"{kind} {resource!r}: {name} {operation} {value}"
        server.ask(what, request, 1)
    for kind, resource, keys in (
        (2, "changing", ["retention.ms", "cleanup.policy", "nothing"]), (2, "never", None),
        (32, "group", ["consumer.session.timeout.ms"]),
    ):  # fmt: skip
        asked = DescribeConfigsResource(kind, resource, keys)
        server.ask(f"describe {kind} {resource!r}", DescribeConfigsRequest([asked]), 4)


# --- records --------------------------------------------------------------------------------------


@play("batches that are refused")
def batches(server: Server) -> None:
    server.topic("batches")
    good = _batch()
    broken = bytearray(good)
    broken[-1] ^= 1
    other_magic = bytearray(good)
    other_magic[16] = 3
    for what, records in {
        "good": good,
        "nothing": b"",
        "a wrong checksum": bytes(broken),
        "magic 3": bytes(other_magic),
        "cut short": good[:-3],
        "two batches": good + good,
        "2 MB": _batch(size=2_000_000),
    }.items():
        server.ask(what, _produce("batches", records), 9)
    for acks in (0x7F, 2, -2):
        server.ask(f"acks={acks}", _produce("batches", good, acks=acks), 9)
    server.ask("no such partition", _produce("batches", good, 5), 9)
    producer = _begin(server, "idempotent")._replace(name="")
    for sequence in (0, 0, 5, 1, 0):
        batch = _batch(producer=producer, sequence=sequence)
        server.ask(f"sequence {sequence} ", _produce("batches", batch), 9)


@play("offsets and reads at the ends of a partition")
def positions(server: Server) -> None:
    server.topic("positions")

    def look(when: str) -> None:
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1_000, 5_000):
            part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(topics=[ListOffsetsTopic("positions", [part])])
            for version in (1, 5, 7, 9, 10):
                server.ask(f"{when}: ListOffsets {version} of {timestamp}", request, version)
        for offset in (-1, 0, 1, 3, 7):
            read = FetchRequest(
                max_wait_ms=0, min_bytes=0, session_epoch=-1,
                topics=[_reading("positions", offset)],
            )  # fmt: skip
            server.ask(f"{when}: Fetch from {offset}", read, 12)

    look("empty")
    for _ in range(3):
        server.answer(_produce("positions", _batch()), 9)
    look("three records")
    for offset in (-2, 4, 2, 1, -1):
        part = DeleteRecordsPartition(0, offset)
        topics = [DeleteRecordsTopic("positions", [part, DeleteRecordsPartition(9, offset)])]
        server.ask(f"DeleteRecords to {offset}", DeleteRecordsRequest(topics, 5_000), 2)
    look("records deleted")


def _reading(topic: str, offset: int) -> FetchTopic:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchTopic(topic=topic, partitions=[part])
