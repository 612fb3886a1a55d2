"""Kafka clients on topics whose partitions are Redis streams: whole programs, real servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.confluent import consume
from tests.support.ports import lasting_port
from tests.support.redis_server import RedisServer, load

pytestmark = pytest.mark.needs("redis-server")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always") as found:
        yield found


def cluster_over(folder: Path, *servers: RedisServer) -> Cluster:
    allowed = ",".join(each.address for each in servers)
    return Cluster(folder, ("--sources-redis-allowed", allowed))


def create(cluster: Cluster, source: str, name: str = "t", partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(name, partitions, config={"quafka.source": source})
    (created,) = admin.create_topics([topic]).values()
    created.result(10)


class Reader:
    """A consumer that reads all partitions of a topic in a thread, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, start: int = 0) -> None:
        self.records: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
        self.errors: list[KafkaError] = []
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._consumer.assign([TopicPartition(topic, n, start) for n in range(partitions)])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(5_000, timeout=0.1):
                error = message.error()
                if error is not None:
                    self.errors.append(error)
                else:
                    at, offset, value = message.partition(), message.offset(), message.value()
                    assert at is not None
                    assert offset is not None
                    assert value is not None
                    self.records[at].append((offset, value))
        self._consumer.close()

    @property
    def count(self) -> int:
        return sum(map(len, self.records))

    def wait_for(self, count: int, seconds: float = 30) -> None:
        until = time.monotonic() + seconds
        while self.count < count:
            assert time.monotonic() < until, f"{self.count} of {count} records; {self.errors}"
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def values_in(server: RedisServer, stream: str) -> list[bytes]:
    with server.client() as client:
        return [fields[b"value"] for _, fields in client.xrange(stream)]


def test_groups_read_and_commit_what_redis_has(tmp_path: Path, server: RedisServer) -> None:
    with server.client() as client:
        for number in range(3):
            load(client, f"s:{number}", [b"%d-%d" % (number, n) for n in range(2_000)], 200)
    with cluster_over(tmp_path, server) as cluster:
        create(cluster, server.source("s:{p}"), partitions=3)
        settings: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        seen: set[bytes] = set()
        for part in range(2):
            consumer = Consumer(settings)
            consumer.subscribe(["t"])
            while len(seen) < 3_000 * (part + 1):
                for message in consumer.consume(500, timeout=10):
                    assert message.error() is None
                    assert message.value() not in seen
                    seen.add(message.value() or b"")
            consumer.commit(asynchronous=False)
            consumer.close()
        assert len(seen) == 6_000


def test_produce_and_admin(tmp_path: Path, server: RedisServer) -> None:
    with cluster_over(tmp_path, server) as cluster:
        create(cluster, server.source("s"))
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        for n in range(5_000):
            producer.produce("t", b"%d" % n, key=b"k", headers=[("h", b"1")])
        assert producer.flush(20) == 0
        assert values_in(server, "s") == [b"%d" % n for n in range(5_000)]
        found = list(consume(cluster.bootstrap, "t", 5_000))
        assert [message.value() for message in found] == [b"%d" % n for n in range(5_000)]
        assert found[0].headers() == [("h", b"1")]
        described = Command(cluster.bootstrap)("topics describe t --format json").json
        configs = {each["name"]: each["value"] for each in described["topics"][0]["configs"]}
        assert configs["quafka.source"] == server.source("s")


@pytest.mark.long
def test_a_killed_redis_costs_no_record_that_it_kept(tmp_path: Path, server: RedisServer) -> None:
    """With AOF: all that was acknowledged is read once, in order, over kills of the server."""
    with cluster_over(tmp_path, server) as cluster:
        create(cluster, server.source("s"))
        bystander = Producer({"bootstrap.servers": cluster.bootstrap})
        reader = Reader(cluster.bootstrap, "t", 1)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        acknowledged: list[bytes] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            assert error is None, error
            acknowledged.append(message.value())

        for n in range(6_000):
            producer.produce("t", b"%d" % n, on_delivery=delivered)
            producer.poll(0)
            if n in (1_500, 3_500):
                producer.poll(0.2)
                server.kill()
                began = time.monotonic()
                bystander.produce("other", b"x")
                assert bystander.flush(10) == 0
                assert time.monotonic() - began < 8
                time.sleep(0.3)
                server.start()
        assert producer.flush(60) == 0
        kept = values_in(server, "s")
        assert kept == [b"%d" % n for n in range(6_000)]
        assert acknowledged == kept
        reader.wait_for(6_000)
        reader.stop()
        assert [value for _, value in reader.records[0]] == kept


@pytest.mark.long
def test_without_aof_a_killed_redis_is_read_on(tmp_path: Path) -> None:
    """What Redis lost is gone; what comes after is read, by the consumer that had read before."""
    with (
        RedisServer(tmp_path / "redis", "--appendonly", "no") as server,
        cluster_over(tmp_path, server) as cluster,
    ):
        create(cluster, server.source("s"))
        with server.client() as client:
            load(client, "s", [b"before-%d" % n for n in range(500)])
        reader = Reader(cluster.bootstrap, "t", 1)
        reader.wait_for(500)
        server.kill()
        time.sleep(0.5)
        server.start()
        with server.client() as client:
            load(client, "s", [b"after-%d" % n for n in range(500)])
        reader.wait_for(1_000)
        reader.stop()
        assert [value for _, value in reader.records[0]][500:] == values_in(server, "s")


@pytest.mark.long
def test_a_failover_to_a_replica(tmp_path: Path) -> None:
    """The replica is promoted while a producer and a consumer work: nothing kept is missed."""
    port = lasting_port()
    with (
        RedisServer(tmp_path / "one", "--appendonly", "yes") as first,
        RedisServer(
            tmp_path / "two", "--replicaof", "127.0.0.1", str(first.port), port=port
        ) as second,
        cluster_over(tmp_path, first, second) as cluster,
    ):
        source = f"redis://{first.address},{second.address}/0?stream=s&replicas=1"
        with second.client() as replica:
            until = time.monotonic() + 30
            while replica.info("replication")["master_link_status"] != "up":
                assert time.monotonic() < until
                time.sleep(0.05)
        create(cluster, source)
        reader = Reader(cluster.bootstrap, "t", 1)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                failed.append(error)

        for n in range(4_000):
            producer.produce("t", b"%d" % n, on_delivery=delivered)
            producer.poll(0)
            if n == 2_000:
                producer.poll(0.3)
                first.kill()
                with second.client() as replica:
                    replica.execute_command("REPLICAOF", "NO", "ONE")
                    replica.config_set("min-replicas-to-write", 0)
                first.start()
                with first.client() as replica:
                    replica.execute_command("REPLICAOF", "127.0.0.1", second.port)
        assert producer.flush(60) == 0
        assert not failed
        kept = values_in(second, "s")
        assert kept == [b"%d" % n for n in range(4_000)]
        reader.wait_for(len(kept))
        reader.stop()
        assert [value for _, value in reader.records[0]] == kept


@pytest.mark.long
def test_trimming_while_it_is_read(tmp_path: Path, server: RedisServer) -> None:
    """A consumer behind a trimmed stream is told so; what it gets has no hole but the trimmed."""
    with server.client() as client, cluster_over(tmp_path, server) as cluster:
        load(client, "s", [b"%06d" % n for n in range(50_000)], 500)
        create(cluster, server.source("s"))
        reader = Reader(cluster.bootstrap, "t", 1)
        reader.wait_for(1_000)
        trimmed = 0
        while trimmed < 45_000 and not reader.errors:
            trimmed += 5_000
            client.xtrim("s", maxlen=50_000 - trimmed, approximate=False)
            time.sleep(0.02)
        until = time.monotonic() + 30
        while reader.count < 50_000 and not reader.errors and time.monotonic() < until:
            time.sleep(0.01)
        reader.stop()
        read = [int(value) for _, value in reader.records[0]]
        assert read == list(range(len(read)))
        if len(read) < 50_000:
            assert reader.errors
            assert reader.errors[0].code() in (
                KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE,
            )  # fmt: skip


@pytest.mark.long
def test_many_entries_in_several_partitions(tmp_path: Path) -> None:
    read_many(tmp_path, 25_000)


def read_many(folder: Path, count: int) -> None:
    """Each of four partitions has so many entries; all come, with the offsets of their ids."""
    with RedisServer(folder / "redis") as server, cluster_over(folder, server) as cluster:
        script = (
            "for i = 0, ARGV[1] - 1 do redis.call('XADD', KEYS[1],"
            " (1700000000000 + math.floor(i / 100)) .. '-' .. (i % 100), 'value', i) end"
        )
        with server.client(socket_timeout=60) as client:
            for number in range(4):
                client.eval(script, 1, f"s:{number}", count)
        create(cluster, server.source("s:{p}"), partitions=4)
        reader = Reader(cluster.bootstrap, "t", 4)
        reader.wait_for(4 * count, 100)
        reader.stop()
        for records in reader.records:
            assert [value for _, value in records] == [b"%d" % n for n in range(count)]
            assert all(
                offset == (1_700_000_000_000 + n // 100) << 10 | n % 100
                for n, (offset, _) in enumerate(records)
            )
