"""Kafka's own Java classes as an oracle: random messages agree byte for byte, in every version.

kafka-clients 4.3 has the versions of Kafka 4; 3.9 still has those that Kafka 4.0 dropped.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from quafka_proto.codec import encode
from tests.property.proto.messages import CASES as ALL_CASES
from tests.property.proto.messages import OURS, random_message
from tests.support.java import jar, run_java

pytestmark = pytest.mark.long

SOURCE = Path(__file__).with_name("java") / "Codec.java"
ROUNDS = 10
CASES = [(message, version) for message, version in ALL_CASES if message.api_key not in OURS]


def codecs() -> list[list[Path]]:
    """The jars of Kafka's clients, of two versions."""
    logging = jar("org.slf4j", "slf4j-api", "1.7.36")
    return [
        [jar("org.apache.kafka", "kafka-clients", v), logging] for v in ("4.4.0", "4.3.0", "3.9.1")
    ]


@pytest.fixture(scope="module")
def asked() -> list[tuple[str, int, str]]:
    """(message, version, bytes in hex): some of each."""
    chance = random.Random(0)
    return [
        (message.__name__, version, b"".join(encode(value, version)).hex())
        for message, version in CASES
        for _ in range(ROUNDS)
        for value in [random_message(message, version, version in message.flexible, chance)]
    ]


@pytest.mark.needs("java", "mvn", fetch=codecs)
def test_kafka_reads_and_writes_what_we_write(asked: list[tuple[str, int, str]]) -> None:
    lines = "".join(f"{name} {version} {data}\n" for name, version, data in asked)
    known: set[tuple[str, int]] = set()
    for jars in codecs():
        answers = run_java(SOURCE, jars, lines).splitlines()
        wrong: dict[tuple[str, int], str] = {}
        for (name, version, data), answer in zip(asked, answers, strict=True):
            if answer != "none":
                known.add((name, version))
                if answer != data:
                    wrong[name, version] = answer
        assert wrong == {}, jars[0].name
    assert known == {(message.__name__, version) for message, version in CASES}
