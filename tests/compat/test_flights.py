"""The README's example with real clients: what goes in comes out, whatever happens in between."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.flights import COUNT, Flight, flights

pytestmark = pytest.mark.long

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SOME = 50_000
"""Flights of each codec but the last, which gets all."""


@pytest.fixture(scope="module")
def all_flights() -> list[Flight]:
    every = list(flights())
    assert len(every) == COUNT
    return every


def produce(bootstrap: str, topic: str, rows: Iterable[Flight], codec: str) -> None:
    failures: list[str] = []

    def failed(error: object, _message: Message) -> None:
        failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
        }
    )
    for row in rows:
        producer.produce(
            topic,
            key=row.key,
            value=row.value,
            headers=list(row.headers),
            timestamp=row.timestamp,
            on_delivery=failed,
        )
    assert producer.flush(60) == 0
    assert not failures, failures[:3]


def check(bootstrap: str, topic: str, expected: list[Flight]) -> None:
    """A consumer finds these flights, whole, in this order."""
    found = consume(bootstrap, topic, len(expected))
    for offset, (message, flight) in enumerate(zip(found, expected, strict=True)):
        key, value, headers = message.key(), message.value(), message.headers()
        seen = (message.offset(), key, value, headers, message.timestamp()[1])
        if seen != (offset, *flight):
            raise AssertionError(f"{topic}: {seen} is not {flight}, at {offset}")


def test_flights_survive_every_codec_restart_and_kill(
    cluster: Cluster, all_flights: list[Flight]
) -> None:
    topics = {f"flights-{codec}": all_flights[:SOME] for codec in CODECS}
    topics["flights-zstd"] = all_flights
    for codec, rows in zip(CODECS, topics.values(), strict=True):
        produce(cluster.bootstrap, f"flights-{codec}", rows, codec)
    check(cluster.bootstrap, "flights-none", topics["flights-none"])

    cluster.restart()
    for topic, rows in topics.items():
        check(cluster.bootstrap, topic, rows)

    cluster.broker.kill()
    cluster.start_broker()
    check(cluster.bootstrap, "flights-none", topics["flights-none"])

    cluster.gateway.kill()
    cluster.start_gateway()
    check(cluster.bootstrap, "flights-zstd", all_flights)


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
