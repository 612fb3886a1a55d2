"""The README's example with real clients: what goes in comes out, whatever happens in between."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Message, Producer

from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.flights import COUNT, Flight, flights

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Digest:
    """One hash over offset, timestamp, key, value and headers of a topic's records, in order."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.blake2b()

    def add(self, flight: Flight) -> None:
        row = (self.count, flight.timestamp, flight.key, flight.value, flight.headers)
        self._hash.update(repr(row).encode())
        self.count += 1

    @property
    def value(self) -> str:
        return self._hash.hexdigest()


@pytest.fixture(scope="module")
def all_flights() -> list[Flight]:
    return list(flights())


@pytest.fixture(scope="module")
def expected(all_flights: list[Flight]) -> str:
    digest = Digest()
    for flight in all_flights:
        digest.add(flight)
    assert digest.count == COUNT
    return digest.value


def produce(bootstrap: str, topic: str, rows: Iterable[Flight], codec: str) -> None:
    failures: list[str] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for row in rows:
        producer.produce(
            topic,
            key=row.key,
            value=row.value,
            headers=list(row.headers),
            timestamp=row.timestamp,
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures, failures[:3]


def digest_of(bootstrap: str, topic: str) -> str:
    digest = Digest()
    for message in consume(bootstrap, topic, COUNT):
        assert message.offset() == digest.count
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        headers = cast("list[tuple[str, bytes]]", message.headers() or [])
        digest.add(Flight(bytes(key), bytes(value), headers, message.timestamp()[1]))
    return digest.value


@pytest.mark.timeout(400)  # eight times all flights: minutes where the machine is busy
def test_flights_survive_every_codec_restart_and_kill(
    cluster: Cluster, all_flights: list[Flight], expected: str
) -> None:
    topics = [f"flights-{codec}" for codec in CODECS]
    for topic, codec in zip(topics, CODECS, strict=True):
        produce(cluster.bootstrap, topic, all_flights, codec)
    assert digest_of(cluster.bootstrap, topics[0]) == expected

    cluster.restart()
    for topic in topics:
        assert digest_of(cluster.bootstrap, topic) == expected, f"{topic} after a restart"

    cluster.broker.kill()
    cluster.start_broker()
    assert digest_of(cluster.bootstrap, topics[0]) == expected, "after kill -9 of the broker"

    cluster.gateway.kill()
    cluster.start_gateway()
    assert digest_of(cluster.bootstrap, topics[4]) == expected, "after kill -9 of the gateway"


def test_kcat_reads_back_the_file_it_produced(
    shared_cluster: Cluster, kcat: str, all_flights: list[Flight], tmp_path: Path
) -> None:
    lines = [flight.key + b":" + flight.value for flight in all_flights]
    file = tmp_path / "flights.txt"
    file.write_bytes(b"\n".join(lines) + b"\n")
    base = [kcat, "-q", "-b", shared_cluster.bootstrap, "-t", "flights"]

    subprocess.run([*base, "-P", "-K:", "-l", "-H", "from=nyc", str(file)], check=True, timeout=60)
    command = [*base, "-C", "-e", "-o", "beginning", "-f", "%k:%s\\n"]
    read = subprocess.run(command, check=True, timeout=60, capture_output=True).stdout
    assert read == file.read_bytes()

    one = [*base, "-C", "-e", "-c", "1", "-J"]
    first = json.loads(subprocess.run(one, check=True, timeout=60, capture_output=True).stdout)
    assert (first["offset"], first["headers"]) == (0, ["from", "nyc"])

    listing = [kcat, "-L", "-J", "-b", shared_cluster.bootstrap]
    metadata = json.loads(
        subprocess.run(listing, check=True, timeout=60, capture_output=True).stdout
    )
    assert [broker["name"] for broker in metadata["brokers"]] == [shared_cluster.bootstrap]
    topics = {topic["topic"]: len(topic["partitions"]) for topic in metadata["topics"]}
    assert topics["flights"] == 1
