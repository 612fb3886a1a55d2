"""Kafka's log folders, as clients see them through a gateway: recorded ones, of a Kafka 4.3."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import confluent_kafka as untyped_confluent
import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import iter_records
from quafka_proto.records import CONTROL, BatchHeader, read_header
from quafka_proto.schema.fetch import FetchRequest, FetchResponse, FetchTopic, PartitionData
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.admin_calls import own_configs, set_config
from tests.support.cluster import Cluster
from tests.support.fetch_calls import LONG, get, park, part, request_of
from tests.support.kafka_calls import produce_request
from tests.support.kafka_folders import (
    COMPACTED,
    EMPTY,
    ROLLED,
    TRANSACTIONS,
    TRIMMED,
    Expected,
    observe,
    recorded,
    row,
)
from tests.support.raw_client import RawClient
from tests.support.suites import more

confluent: Any = untyped_confluent
BY_NAME = range(4, 13)
BY_ID = range(13, 19)
READ_COMMITTED = 1


class Adopted:
    """A broker that serves a recorded folder, and what Kafka's clients saw there."""

    def __init__(self, cluster: Cluster, expected: Expected) -> None:
        self.cluster = cluster
        self.expected: Expected = expected["topics"]

    def id_of(self, topic: str) -> bytes:
        return bytes.fromhex(self.expected[topic]["id"])

    def partitions(self) -> list[tuple[str, int, Any]]:
        return [
            (name, number, partition)
            for name, topic in self.expected.items()
            for number, partition in enumerate(topic["partitions"])
        ]


@pytest.fixture(scope="module", params=["clean", *more(["killed"])])
def adopted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Adopted]:
    folder = tmp_path_factory.mktemp("adopted")
    expected = recorded(folder)
    kafka = folder / str(request.param)
    with Cluster(folder, broker_args=("--adopt", str(kafka))) as running:
        yield Adopted(running, expected)
    assert "ERROR" not in running.logs


@pytest.fixture
def client(adopted: Adopted) -> Iterator[RawClient]:
    with RawClient(adopted.cluster.address) as connected:
        yield connected


def test_clients_see_what_they_saw_of_kafka(adopted: Adopted) -> None:
    assert observe(cast(Any, adopted.cluster))["topics"] == adopted.expected


def _batches(data: PartitionData) -> list[tuple[BatchHeader, memoryview]]:
    """The batches of an answer, control batches among them."""
    rest = memoryview(cast(bytes, data.records or b""))
    found: list[tuple[BatchHeader, memoryview]] = []
    while rest:
        header = read_header(rest)
        found.append((header, rest[: header.length]))
        rest = rest[header.length :]
    return found


def _everything(
    client: RawClient, version: int, topic: str | bytes, number: int, start: int, size: int
) -> list[list[Any]]:
    """All records of a partition, fetched in pieces."""
    found: list[list[Any]] = []
    offset = start
    while True:
        request = request_of(topic, part(number, offset, size), max_bytes=size)
        (data,) = get(client, request, version)
        assert data.error_code == 0
        batches = _batches(data)
        if not batches:
            assert offset == data.high_watermark
            return found
        for header, batch in batches:
            offset = header.last_offset + 1
            if not header.attributes & CONTROL:
                found += [row(each) for each in iter_records(batch) if each.offset >= start]


@pytest.mark.parametrize("version", [*BY_NAME, *BY_ID])
def test_every_fetch_version_returns_all_records(
    adopted: Adopted, client: RawClient, version: int
) -> None:
    for name, number, expected in adopted.partitions():
        topic = name if version in BY_NAME else adopted.id_of(name)
        for size in (1, 1 << 20)[version % 2 :]:
            found = _everything(client, version, topic, number, expected["start"], size)
            assert found == expected["records"], name


def _one(client: RawClient, version: int, topic: FetchTopic) -> PartitionData:
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    answer = client.call(request, FetchResponse, version)
    assert answer.error_code == 0
    (found,) = answer.responses[0].partitions
    return found


@pytest.mark.parametrize("version", [*BY_NAME, *BY_ID])
def test_what_is_not_there_is_answered_as_kafka_does(
    adopted: Adopted, client: RawClient, version: int
) -> None:
    by_id = version in BY_ID

    def fetch(topic: str, number: int, offset: int) -> PartitionData:
        wanted = FetchTopic(partitions=[part(number, offset)])
        if by_id:
            wanted.topic_id = adopted.id_of(topic) if topic in adopted.expected else b"?" * 16
        else:
            wanted.topic = topic
        return _one(client, version, wanted)

    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch("no-such", 0, 0).error_code == unknown
    assert fetch(ROLLED, 9, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    empty = fetch(EMPTY, 0, 0)
    assert (empty.error_code, empty.high_watermark, empty.records or b"") == (0, 0, b"")
    start, end = (adopted.expected[TRIMMED]["partitions"][0][key] for key in ("start", "end"))
    for offset in (start - 1, end + 1):
        assert fetch(TRIMMED, 0, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(TRIMMED, 0, end).error_code == 0


def test_a_compacted_offset_is_answered_with_the_next_batch(
    adopted: Adopted, client: RawClient
) -> None:
    """By the broker, and then from the gateway's memory."""
    records = adopted.expected[COMPACTED]["partitions"][0]["records"]
    there = {record[0] for record in records}
    for offset in range(max(there)):
        for _ in range(2):
            (data,) = get(client, request_of(COMPACTED, part(0, offset, 1), max_bytes=1, wait=LONG))
            ((header, batch),) = _batches(data)
            assert header.last_offset >= offset
            expected = min(each for each in there if each >= offset)
            found = [each.offset for each in iter_records(batch)]
            assert expected in found or header.last_offset < expected


def test_an_undecided_transaction_is_waited_for(adopted: Adopted, client: RawClient) -> None:
    topic = adopted.expected[TRANSACTIONS]["partitions"][0]
    stable = max(topic["committed"]) + 1
    request = request_of(TRANSACTIONS, part(0, stable), isolation=READ_COMMITTED, wait=300)
    park(client, request, 12)
    _, answer = client.receive(FetchResponse, 12)
    (data,) = answer.responses[0].partitions
    headers = [header for header, _ in _batches(data)]
    assert all(header.attributes & CONTROL for header in headers)
    assert stable <= data.last_stable_offset < data.high_watermark


def test_kafkas_topics_are_read_only(adopted: Adopted, client: RawClient) -> None:
    answer = client.call(produce_request(EMPTY, b"x"), ProduceResponse, 9)
    produced = answer.responses[0].partition_responses[0]
    assert produced.error_code == ErrorCode.POLICY_VIOLATION
    assert "read only" in (produced.error_message or "")
    assert set_config(client, EMPTY, "retention.ms", "1") == ErrorCode.POLICY_VIOLATION
    delete = DeleteTopicsRequest(topic_names=[EMPTY], timeout_ms=5_000)
    gone = client.call(delete, DeleteTopicsResponse, 5).responses[0]
    assert gone.error_code == ErrorCode.POLICY_VIOLATION
    again = CreatableTopic(name=EMPTY, num_partitions=1, replication_factor=1)
    create = CreateTopicsRequest(topics=[again], timeout_ms=5_000)
    made = client.call(create, CreateTopicsResponse, 5).topics[0]
    assert made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert own_configs(client, "codec-gzip") == {"retention.bytes": "12345678"}
    assert own_configs(client, COMPACTED)["cleanup.policy"] == "compact"


def test_a_broker_that_cannot_adopt_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"cannot serve kafka\.log\.dirs: .*meta\.properties"):
        Cluster(tmp_path, broker_args=("--adopt", str(tmp_path))).start_broker()


def _consumer(cluster: Cluster) -> Any:
    settings = {
        "bootstrap.servers": cluster.bootstrap, "group.id": "ours", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "log_level": 0,
    }  # fmt: skip
    return confluent.Consumer(settings)


@pytest.mark.long
def test_a_group_goes_on_after_a_restart(adopted: Adopted) -> None:
    """Last: the processes are others afterwards."""
    records = adopted.expected["codec-lz4"]["partitions"][0]["records"]
    expected = [value for _, _, _, value, _ in records]
    found: list[Any] = []
    for count in (50, len(expected) - 50):
        consumer = _consumer(adopted.cluster)
        consumer.subscribe(["codec-lz4"])
        messages = consumer.consume(count, timeout=20)
        found += [message.value() for message in messages]
        consumer.commit(asynchronous=False)
        consumer.close()
        adopted.cluster.restart()
    assert [value and base64.b64encode(value).decode() for value in found] == expected
