"""`mesh.bulk = tls` in whole programs: consumers get the same bytes, whatever happens to it."""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from quafka.cli import main
from quafka_mesh_ops.identity import Identity
from tests.integration.test_health import becomes
from tests.support.cluster import Cluster, Process
from tests.support.confluent import consume
from tests.support.prometheus import get

pytestmark = pytest.mark.long

BY_VALUE = ("--mesh-records", "value")  # else a gateway on this host reads the log itself
TLS, QUIC = (*BY_VALUE, "--mesh-bulk", "tls"), (*BY_VALUE, "--mesh-bulk", "quic")
NO_CACHE = ("--fetch-cache-bytes", "0")
RECORDS, SIZE = 250, 100_000
VALUES = [random.Random(number).randbytes(SIZE) for number in range(RECORDS)]
DIGEST = hashlib.sha256(b"".join(VALUES)).digest()


def fill(cluster: Cluster) -> None:
    """Produce 25 MB."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for value in VALUES:
        producer.produce("t", value)
        producer.poll(0)
    assert producer.flush(60) == 0


def by_librdkafka(bootstrap: str) -> bytes:
    digest = hashlib.sha256()
    for message in consume(bootstrap, "t", RECORDS):
        digest.update(message.value() or b"")
    return digest.digest()


def by_kafka_python(bootstrap: str) -> bytes:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    consumer.assign([TopicPartition("t", 0)])
    consumer.seek_to_beginning()
    digest = hashlib.sha256()
    for _ in range(RECORDS):
        digest.update(next(consumer).value)
    consumer.close()
    return digest.digest()


def peer_of(process: Process) -> dict[str, Any]:
    """The peer of /mesh that has the records; in a store, a gateway has one more connection."""
    _, _, body = get(str(process.ready["operations"]), "/mesh")
    peers: list[dict[str, Any]] = json.loads(body)["peers"]
    return max(peers, key=lambda peer: peer["bulk_tls_bytes"], default={})


def wait_until(true: Callable[[], object], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "in vain"
        time.sleep(0.02)


def over_tls(cluster: Cluster) -> None:
    """Wait until the gateway's bulk answers travel over TLS."""
    wait_until(lambda: peer_of(cluster.gateway).get("bulk_over_tls"))


@pytest.mark.parametrize(("broker", "gateway"), [(TLS, TLS), (QUIC, TLS), (TLS, BY_VALUE)])
def test_consumers_get_the_same_bytes(
    tmp_path: Path, broker: tuple[str, ...], gateway: tuple[str, ...]
) -> None:
    with Cluster(tmp_path, broker, (*gateway, *NO_CACHE)) as cluster:
        both = broker == gateway == TLS
        if both:
            over_tls(cluster)
        fill(cluster)
        assert by_librdkafka(cluster.bootstrap) == DIGEST
        assert by_kafka_python(cluster.bootstrap) == DIGEST
        for process in (cluster.broker, cluster.gateway):
            peer = peer_of(process)
            assert peer["bulk_over_tls"] is both
            assert (peer["bulk_tls_bytes"] > RECORDS * SIZE) is both
            _, _, page = get(str(process.ready["operations"]), "/statusz")
            assert (">TLS, " in page) is both


class Reader(threading.Thread):
    """Reads the topic again and again; every time the same bytes."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._cluster_address = bootstrap
        self.stop = threading.Event()
        self.times = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                assert by_librdkafka(self._cluster_address) == DIGEST
                self.times += 1
        except BaseException as e:
            self.failure = e

    def finish(self) -> None:
        self.stop.set()
        self.join(60)
        assert self.failure is None, self.failure


def in_transfer(cluster: Cluster) -> None:
    """Wait for a moment in which bulk answers are under way."""
    before = peer_of(cluster.gateway)["bulk_tls_bytes"]
    wait_until(lambda: peer_of(cluster.gateway)["bulk_tls_bytes"] > before + 1_000_000)


def test_a_consumer_outlives_a_broker_that_is_killed_during_a_transfer(tmp_path: Path) -> None:
    with Cluster(tmp_path, TLS, (*TLS, *NO_CACHE)) as cluster:
        over_tls(cluster)
        fill(cluster)
        reader = Reader(cluster.bootstrap)
        reader.start()
        for _ in range(2):
            in_transfer(cluster)
            cluster.broker.kill()
            cluster.start_broker()
            over_tls(cluster)
            times = reader.times
            wait_until(lambda times=times: reader.times > times or reader.failure, 60)  # type: ignore[misc]
        reader.finish()


def test_a_revocation_during_a_transfer_ends_it_until_the_node_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "allowed"
    gateway = Identity.load_or_create(tmp_path / "gateway.key").node_id
    assert main(["node", "allow", gateway, "--file", str(file)]) == 0
    broker = (*TLS, "--mesh-allow", "", "--mesh-allowed-file", str(file))
    with Cluster(tmp_path, broker, (*TLS, *NO_CACHE)) as cluster:
        becomes(cluster.gateway, set())
        over_tls(cluster)
        fill(cluster)
        reader = Reader(cluster.bootstrap)
        reader.start()
        in_transfer(cluster)
        assert main(["node", "revoke", gateway, "--file", str(file)]) == 0
        becomes(cluster.gateway, {"broker"})
        revoked = peer_of(cluster.gateway)
        assert not revoked["bulk_over_tls"]
        assert not peer_of(cluster.broker)
        time.sleep(0.5)
        assert peer_of(cluster.gateway)["bulk_tls_bytes"] == revoked["bulk_tls_bytes"]
        assert main(["node", "allow", gateway, "--file", str(file)]) == 0
        over_tls(cluster)
        times = reader.times
        wait_until(lambda: reader.times > times or reader.failure, 60)
        reader.finish()


def test_a_taken_tcp_port_is_named_at_the_start(tmp_path: Path) -> None:
    with Cluster(tmp_path, TLS, TLS) as cluster:
        second = tmp_path / "second"
        with pytest.raises(AssertionError, match=r"cannot listen on .* \(UDP and TCP\)"):
            Process(
                ["broker", "--data", str(second), "--ops-listen", "127.0.0.1:0", "--mesh-listen",
                 "{}:{}".format(*cluster.mesh_address), *TLS],
                tmp_path / "second.log",
            )  # fmt: skip
