"""A running Apache Kafka 4.3 and a broker that serves its log folders: clients see the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import confluent_kafka as untyped_confluent
import pytest
from confluent_kafka import admin as untyped_admin

from quafka_proto.schema.fetch import FetchRequest, FetchResponse, FetchTopic
from quafka_proto.schema.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.support.apache_kafka import ApacheKafka, apache_kafka
from tests.support.cluster import Cluster
from tests.support.fetch_calls import part
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import Run, run_tools, tool
from tests.support.kafka_folders import (
    COMPACTED,
    EMPTY,
    ROLLED,
    SETTINGS,
    TRANSACTIONS,
    TRIMMED,
    Expected,
    observe,
    write,
)
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.long, JAVA_TOOLS]
confluent: Any = untyped_confluent
kafka_admin: Any = untyped_admin
LIVE = "live"


@dataclass(frozen=True)
class Both:
    """A Kafka with topics of all kinds, and a cluster that serves its folders."""

    kafka: ApacheKafka
    ours: Cluster
    expected: Expected
    _producer: Any
    """Its open transaction lasts as long as it."""

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.kafka.port


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    with apache_kafka(folder / "kafka", 2, **SETTINGS) as kafka:
        producer = write(kafka)
        time.sleep(1.5)  # for the cleaner
        expected = observe(kafka)
        with Cluster(folder, broker_args=("--adopt", str(kafka.settings))) as ours:
            yield Both(kafka, ours, expected, producer)


def test_clients_see_the_same(both: Both) -> None:
    assert observe(cast(Any, both.ours))["topics"] == both.expected["topics"]


def test_the_console_consumer_prints_the_same(both: Both) -> None:
    shown = ("offset", "partition", "timestamp", "headers", "key", "epoch", "delivery")
    printer = [w for each in shown for w in ("--formatter-property", f"print.{each}=true")]
    runs: dict[str, Run] = {}
    for name, at in (("kafka", both.kafka.bootstrap), ("ours", both.ours.bootstrap)):
        for topic, isolation, which in (
            (TRANSACTIONS, "read_committed", "committed"),
            (TRANSACTIONS, "read_uncommitted", "records"),
            (COMPACTED, "read_committed", "committed"),
        ):
            records = len(both.expected["topics"][topic]["partitions"][0][which])
            runs[f"{name} {topic} {isolation}"] = tool(
                "consumer.ConsoleConsumer", "--bootstrap-server", at, "--topic", topic,
                "--partition", "0", "--offset", "earliest", "--timeout-ms", "20000",
                "--max-messages", str(records), "--isolation-level", isolation, *printer,
            )  # fmt: skip
    printed = {
        name: [line for line in outcome.lines if line.startswith("CreateTime:")]
        for name, outcome in run_tools(runs).items()
    }
    for name, lines in printed.items():
        assert lines
        assert lines == printed[name.replace("ours", "kafka")], name


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("isolation", [0, 1])
def test_answers_to_fetches_are_the_same(both: Both, version: int, isolation: int) -> None:
    """Bytes of batches, bounds, aborted transactions, and errors."""
    topics = both.expected["topics"]
    asked = [
        (name, number, offset)
        for name, topic in topics.items()
        for number, found in enumerate(topic["partitions"])
        for offset in (0, found["start"], found["end"] // 2, found["end"], found["end"] + 1)
    ]
    asked += [(ROLLED, 9, 0), ("no-such", 0, 0), (EMPTY, 0, 3), (TRIMMED, 0, 0)]
    with RawClient(both.address()) as kafka, RawClient(both.ours.address) as ours:
        for name, number, offset in asked:
            wanted = FetchTopic(partitions=[part(number, offset)])
            if version < 13:
                wanted.topic = name
            else:
                known = topics.get(name)
                wanted.topic_id = bytes.fromhex(known["id"]) if known else b"?" * 16
            theirs = _answer(kafka, version, wanted, isolation)
            mine = _answer(ours, version, wanted, isolation)
            assert mine[:2] == theirs[:2], (name, number, offset)
            if theirs[1]:
                continue  # Kafka's bounds are -1 then
            assert mine[:-2] == theirs[:-2], (name, number, offset)
            # An answer of Kafka's ends with a segment.
            (my_aborted, my_records), (aborted, records) = mine[-2:], theirs[-2:]
            assert my_records.startswith(records)
            assert bool(my_records) == bool(records)
            assert my_aborted[: len(aborted)] == aborted
            assert my_records != records or my_aborted == aborted


def _answer(client: RawClient, version: int, topic: FetchTopic, isolation: int) -> tuple[Any, ...]:
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic], isolation_level=isolation
    )
    answer = client.call(request, FetchResponse, version)
    (found,) = answer.responses[0].partitions
    aborted = sorted(
        (each.producer_id, each.first_offset) for each in found.aborted_transactions or ()
    )
    return (
        answer.error_code, found.error_code, found.high_watermark, found.last_stable_offset,
        found.log_start_offset, aborted, bytes(cast(bytes, found.records or b"")),
    )  # fmt: skip


@pytest.mark.parametrize("isolation", [0, 1])
def test_offsets_by_time_are_the_same(both: Both, isolation: int) -> None:
    """First, last, greatest and given times, with their leader epochs."""
    with RawClient(both.address()) as kafka, RawClient(both.ours.address) as ours:
        for name, topic in both.expected["topics"].items():
            for number, partition in enumerate(topic["partitions"]):
                times = [record[1] for record in partition["records"]]
                asked = [0, *times[::20], *times[-1:]]
                for timestamp in (-1, -2, -3, *asked, *(time + 1 for time in asked), 1 << 62):
                    wanted = ListOffsetsTopic(
                        name=name,
                        partitions=[ListOffsetsPartition(
                            partition_index=number, timestamp=timestamp
                        )],
                    )  # fmt: skip
                    request = ListOffsetsRequest(topics=[wanted], isolation_level=isolation)
                    answers = [
                        client.call(request, ListOffsetsResponse, 7).topics[0].partitions[0]
                        for client in (kafka, ours)
                    ]
                    found = [
                        (each.error_code, each.offset, each.timestamp, each.leader_epoch)
                        for each in answers
                    ]
                    assert found[0] == found[1], (name, number, timestamp)


def test_ends_of_leader_epochs_are_the_same(both: Both) -> None:
    with RawClient(both.address()) as kafka, RawClient(both.ours.address) as ours:
        for name, topic in both.expected["topics"].items():
            for number in range(len(topic["partitions"])):
                for epoch in range(3):
                    asked = OffsetForLeaderPartition(partition=number, leader_epoch=epoch)
                    request = OffsetForLeaderEpochRequest(
                        topics=[OffsetForLeaderTopic(topic=name, partitions=[asked])]
                    )
                    answers = [
                        client.call(request, OffsetForLeaderEpochResponse, 4).topics[0]
                        for client in (kafka, ours)
                    ]
                    found = [
                        (each.error_code, each.leader_epoch, each.end_offset)
                        for each in (answer.partitions[0] for answer in answers)
                    ]
                    assert found[0] == found[1], (name, number, epoch)


class Reader:
    """Reads the topic that is written to from our cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap, "group.id": LIVE, "log_level": 0,
                "enable.auto.commit": False,
            }
        )  # fmt: skip
        self._consumer.assign([confluent.TopicPartition(LIVE, 0, 0)])
        self.values: list[bytes] = []
        self.offsets: list[int] = []

    def receive(self, last: bytes) -> None:
        """Read up to this record."""
        until = time.monotonic() + 20
        while (not self.values or self.values[-1] != last) and time.monotonic() < until:
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(message.value())
                self.offsets.append(message.offset())
        assert self.values[-1] == last

    def close(self) -> None:
        self._consumer.commit(asynchronous=False)
        self._consumer.close()


def _send(kafka: ApacheKafka, numbers: range, kill_after: int = 0) -> list[bytes]:
    """Write numbered records, the last ones after a kill. Returns the acknowledged ones."""
    acked: list[bytes] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acked.append(message.value())

    producer = confluent.Producer(
        {
            "bootstrap.servers": kafka.bootstrap, "linger.ms": 1, "log_level": 0,
            "message.timeout.ms": 1_500,
        }
    )  # fmt: skip
    for number in numbers:
        producer.produce(LIVE, b"%d " % number + bytes(1_000), on_delivery=delivered)
        producer.poll(0)
        if kill_after and number == numbers[kill_after]:
            while len(acked) < kill_after // 2:
                producer.poll(0.1)
            kafka.kill()
    producer.flush()
    return acked


def test_a_consumer_follows_a_kafka_that_is_killed(both: Both) -> None:
    """Last: the Kafka is another one afterwards. Acknowledged records are read once, in order."""
    admin = kafka_admin.AdminClient({"bootstrap.servers": both.kafka.bootstrap, "log_level": 0})
    config = {"segment.bytes": str(1 << 20)}
    for made in admin.create_topics([kafka_admin.NewTopic(LIVE, 1, config=config)]).values():
        made.result()
    reader = Reader(both.ours)
    acked = _send(both.kafka, range(1_000))
    reader.receive(acked[-1])
    more = _send(both.kafka, range(1_000, 3_000), kill_after=1_000)
    reader.receive(more[-1])
    both.kafka.start()
    acked += more + _send(both.kafka, range(3_000, 3_500))
    reader.receive(acked[-1])
    reader.close()
    assert reader.offsets == sorted(set(reader.offsets))
    known = set(acked)
    assert [each for each in reader.values if each in known] == acked
    for gone in admin.delete_topics([LIVE]).values():
        gone.result()
    _await_gone(both.ours, LIVE)


def _await_gone(cluster: Cluster, topic: str) -> None:
    admin = kafka_admin.AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    until = time.monotonic() + 10
    while topic in admin.list_topics().topics and time.monotonic() < until:
        time.sleep(0.2)
    assert topic not in admin.list_topics().topics
