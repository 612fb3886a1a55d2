"""Records by place: a gateway that reads the broker's files answers as one that does not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from quafka.cli import main
from quafka_mesh_ops.identity import Identity
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import base_offset
from quafka_proto.schema.fetch import FetchRequest, PartitionData
from tests.integration.test_health import becomes
from tests.support.cluster import Cluster, Process
from tests.support.confluent import consume
from tests.support.fetch_calls import (
    create,
    delete,
    delete_records,
    get,
    one,
    part,
    put,
    request_of,
)
from tests.support.kafka_calls import produce_batch
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient

pytestmark = (
    pytest.mark.local_log
)  # of a store, the gateway reads objects: test_records_from_the_store.py

AUTO = ("--mesh-records", "auto")
MIB = 1 << 20
FETCHED = "quafka_gateway_fetched_bytes_total"
CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC = 2, 1, 3


def placed(cluster: Cluster) -> float:
    """Bytes that the gateway has read by place."""
    return Scrape(cluster.gateway.ready["operations"])(FETCHED, by="place")


def descriptors(process: Process, name: str) -> float:
    return Scrape(process.ready["operations"])(name)


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def fill(cluster: Cluster, topic: str, batches: int = 40, size: int = 100_000) -> list[bytes]:
    """Produce batches of one record; returns the values."""
    values = [os.urandom(size) for _ in range(batches)]
    with RawClient(cluster.address) as client:
        for value in values:
            batch = build_batch([Record(0, 1_000, None, value, [])])
            assert produce_batch(client, topic, batch) >= 0
    return values


def whole(client: RawClient, topic: str, offset: int = 0) -> list[bytes]:
    """The bytes of all batches from an offset on, as fetched in steps of a MiB."""
    found: list[bytes] = []
    while True:
        data = one(client, topic, part(offset=offset))
        assert data.error_code == 0
        records = bytes(data.records or b"")  # type: ignore[arg-type]
        if not records:
            return found
        at = 0
        while at < len(records):
            length = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
            found.append(records[at : at + length])
            at += length
        offset = base_offset(found[-1]) + 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, AUTO, AUTO) as running, RawClient(running.address) as client:
        create(client, "t")
        becomes(running.gateway, set())
        one(client, "t", part())  # the first fetch begins to connect
        until(lambda: descriptors(running.broker, "quafka_place_gateways") == 1)
        yield running


def test_a_catch_up_is_read_by_place_and_byte_for_byte(cluster: Cluster) -> None:
    values = fill(cluster, "t")
    with RawClient(cluster.address) as client:
        batches = whole(client, "t")
    assert [batch[-len(value) - 1 : -1] for batch, value in zip(batches, values, strict=True)] == (
        values
    )
    assert placed(cluster) >= sum(map(len, values))
    found = [m.value() for m in consume(cluster.bootstrap, "t", len(values))]
    assert found == values


@pytest.mark.long
def test_small_batches_are_read_at_once(cluster: Cluster) -> None:
    values = fill(cluster, "t", batches=400, size=1_000)
    found = [m.value() for m in consume(cluster.bootstrap, "t", len(values))]
    assert found == values
    assert placed(cluster) > 200_000


@pytest.mark.long
def test_old_clients_get_message_sets(cluster: Cluster) -> None:
    values = fill(cluster, "t", batches=10)
    with RawClient(cluster.address) as client:
        (data,) = get(client, request_of("t", part(max_bytes=8 * MIB), max_bytes=8 * MIB), 3)
    assert all(value in bytes(data.records or b"") for value in values)  # type: ignore[arg-type]
    assert placed(cluster) > 0


@pytest.mark.long
def test_a_consumer_reads_equal_bytes_while_others_produce(cluster: Cluster) -> None:
    stop = threading.Event()
    made: list[bytes] = []

    def produce_on() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
        while not stop.is_set():
            made.append(os.urandom(20_000))
            producer.produce("t", made[-1], partition=0)
            producer.poll(0)
            if not len(made) % 50:
                time.sleep(0.02)
        assert producer.flush(30) == 0

    thread = threading.Thread(target=produce_on)
    thread.start()
    time.sleep(1.5)
    stop.set()
    found = [m.value() for m in consume(cluster.bootstrap, "t", 200)]
    thread.join()
    assert found == made[:200]
    found = [m.value() for m in consume(cluster.bootstrap, "t", len(made))]
    assert found == made
    assert placed(cluster) > 0


@pytest.mark.long
def test_deleted_records_and_topics_are_not_served(cluster: Cluster) -> None:
    values = fill(cluster, "t")
    with RawClient(cluster.address) as client, RawClient(cluster.address) as other:
        assert len(whole(client, "t")) == len(values)
        delete_records(other, "t", 20)
        assert one(client, "t", part(offset=5)).error_code == OFFSET_OUT_OF_RANGE
        assert len(whole(client, "t", 20)) == len(values) - 20
        delete(other, "t")
        assert one(client, "t", part(offset=25)).error_code == UNKNOWN_TOPIC
        create(other, "t")
        put(other, "t", b"new")
        assert len(whole(client, "t")) == 1


@pytest.mark.long
def test_rewritten_and_freed_segments_lose_their_descriptors(tmp_path: Path) -> None:
    broker = (*AUTO, "--wal-segment-bytes", str(2 * MIB))
    with Cluster(tmp_path, broker, AUTO) as cluster, RawClient(cluster.address) as client:
        for topic in ("t", "u"):
            create(client, topic)
        one(client, "t", part())
        until(lambda: descriptors(cluster.broker, "quafka_place_gateways") == 1)
        fill(cluster, "u", batches=60)
        kept = fill(cluster, "t", batches=3)
        fill(cluster, "u", batches=60)
        assert len(whole(client, "u")) == 120
        before = descriptors(cluster.gateway, "quafka_gateway_descriptors")
        assert before >= 5
        delete(client, "u")
        until(lambda: descriptors(cluster.broker, "quafka_handed_descriptors") <= 1, 25)
        found = [m.value() for m in consume(cluster.bootstrap, "t", len(kept))]
        assert found == kept
        until(lambda: descriptors(cluster.gateway, "quafka_gateway_descriptors") <= 3, 15)


@pytest.mark.long
def test_readers_survive_kills_of_broker_and_gateway(cluster: Cluster) -> None:
    values = fill(cluster, "t")
    with RawClient(cluster.address) as client:
        before = whole(client, "t")
    assert len(before) == len(values)
    cluster.broker.kill()
    cluster.start_broker()
    found = [m.value() for m in consume(cluster.bootstrap, "t", len(values))]
    assert found == values

    def read_by_place() -> bool:
        """What an earlier run has written is verified first, in the background."""
        cluster.gateway.kill()  # and with it the cache
        cluster.start_gateway()
        found = [m.value() for m in consume(cluster.bootstrap, "t", len(values))]
        assert found == values
        return placed(cluster) > 0

    until(read_by_place, 30)


@pytest.mark.long
def test_a_revoked_node_gets_no_more_bytes(tmp_path: Path) -> None:
    file = tmp_path / "allowed"
    gateway = Identity.load_or_create(tmp_path / "gateway.key").node_id
    assert main(["node", "allow", gateway, "--file", str(file)]) == 0
    broker = (*AUTO, "--mesh-allow", "", "--mesh-allowed-file", str(file))
    with Cluster(tmp_path, broker, AUTO) as cluster, RawClient(cluster.address) as client:
        becomes(cluster.gateway, set())
        create(client, "t")
        one(client, "t", part())
        until(lambda: descriptors(cluster.broker, "quafka_place_gateways") == 1)
        fill(cluster, "t")
        whole(client, "t")
        assert descriptors(cluster.gateway, "quafka_gateway_descriptors") > 0
        assert main(["node", "revoke", gateway, "--file", str(file)]) == 0
        until(lambda: descriptors(cluster.gateway, "quafka_gateway_descriptors") == 0)
        assert descriptors(cluster.broker, "quafka_place_gateways") == 0
        assert "revoked the descriptors" in cluster.logs


@pytest.mark.long
def test_a_node_of_one_org_gets_no_segment_with_others(tmp_path: Path) -> None:
    gateway = Identity.load_or_create(tmp_path / "gateway.key").node_id
    broker = (*AUTO, "--mesh-allow", f"{gateway} orgs=1")
    with Cluster(tmp_path, broker, AUTO) as cluster, RawClient(cluster.address) as client:
        becomes(cluster.gateway, set())
        create(client, "t")
        one(client, "t", part())
        until(lambda: descriptors(cluster.broker, "quafka_place_gateways") == 1)
        values = fill(cluster, "t")
        assert len(whole(client, "t")) == len(values)
        assert placed(cluster) == 0
        assert descriptors(cluster.broker, "quafka_handed_descriptors") == 0


def damaged_answers(folder: Path, data: Path, how: str, offsets: int) -> list[tuple[int, bytes]]:
    """What is answered from each offset on, by a gateway that reads like this."""
    folder.mkdir()
    answers: list[tuple[int, bytes]] = []
    args = ("--mesh-records", how)
    with Cluster(folder, args, args, data=data) as cluster, RawClient(cluster.address) as client:
        becomes(cluster.gateway, set())
        for turn in range(3):  # the segment is verified, and the cache has what it may have
            answers = []
            for offset in range(offsets):
                data_of: PartitionData = one(client, "t", part(offset=offset))
                records = bytes(data_of.records or b"")  # type: ignore[arg-type]
                answers.append((data_of.error_code, records))
            time.sleep(0.3 * (turn < 2))
    return answers


@pytest.mark.long
def test_damage_is_answered_as_by_value(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    with Cluster(first, AUTO, AUTO) as cluster, RawClient(cluster.address) as client:
        create(client, "t")
        fill(cluster, "t", batches=30)
        data = cluster.data
    (log,) = (data / "wal").glob("*.log")
    with log.open("r+b") as file:
        file.seek(1_500_000)
        byte = file.read(1)
        file.seek(1_500_000)
        file.write(bytes([byte[0] ^ 1]))
    value = damaged_answers(tmp_path / "value", data, "value", 30)
    place = damaged_answers(tmp_path / "place", data, "auto", 30)
    assert CORRUPT_MESSAGE in [code for code, _ in value]
    assert place == value


@pytest.mark.long
def test_a_shortened_file_closes_the_connection(cluster: Cluster) -> None:
    fill(cluster, "t")
    (log,) = (cluster.data / "wal").glob("*.log")
    size = log.stat().st_size
    kept = log.read_bytes()
    request: FetchRequest = request_of("t", part(max_bytes=4 * MIB), max_bytes=4 * MIB)
    with RawClient(cluster.address) as client:
        get(client, request)
        os.truncate(log, size // 8)
        try:
            client.send(request, 12)
            with pytest.raises((ConnectionError, EOFError, AssertionError)):
                client.receive_frame()
        finally:
            with log.open("r+b") as file:
                file.write(kept)
    with RawClient(cluster.address) as client:
        assert len(whole(client, "t")) == 40


@pytest.mark.long
def test_a_client_that_reads_slowly_gets_everything(cluster: Cluster) -> None:
    values = fill(cluster, "t", batches=80)
    request = request_of("t", part(max_bytes=8 * MIB), max_bytes=8 * MIB)
    with RawClient(cluster.address, timeout=30) as slow, RawClient(cluster.address) as other:
        whole(other, "t")
        slow.send(request, 12)
        received = 0
        time.sleep(1.0)
        began = time.monotonic()
        assert len(whole(other, "t")) == len(values)  # a bystander does not notice
        assert time.monotonic() - began < 5
        length = int.from_bytes(slow._exactly(4), "big")
        while received < length:
            received += len(slow.socket.recv(min(100_000, length - received)))
        assert length > 7_000_000


@pytest.mark.long
def test_clients_that_go_in_the_middle_leave_nothing_behind(cluster: Cluster) -> None:
    fill(cluster, "t", batches=80)
    request = request_of("t", part(max_bytes=8 * MIB), max_bytes=8 * MIB)

    def files() -> int:
        return len(list(Path(f"/proc/{cluster.gateway.pid}/fd").iterdir()))

    with RawClient(cluster.address) as other:
        whole(other, "t")
        before = files()
        for _ in range(20):
            with RawClient(cluster.address) as gone:
                gone.send(request, 12)
                gone._exactly(100_000)
        until(lambda: files() <= before)
