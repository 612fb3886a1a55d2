"""Transactions over three brokers, by other people's clients, with kills of each broker."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer

from tests.support.copy_job import copy
from tests.support.fleet import Fleet
from tests.support.group_members import GROUPS
from tests.support.isolated_reader import IsolatedReader
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

ROUTES = [("target-*", "b"), ("b-*", "b"), ("source-*", "c"), ("c-*", "c"), ("*", "a")]
_SECONDS = 30.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """What a test kills it starts again."""
    folder = tmp_path_factory.mktemp("fleet")
    with Fleet(folder, ROUTES, broker_args=GROUPS, spanned=True) as running:
        yield running


def created(fleet: Fleet, suffix: str) -> list[str]:
    """A topic at each broker."""
    topics = [f"{broker}-{suffix}" for broker in "abc"]
    with RawClient(fleet.address()) as client:
        for topic in topics:
            create_topic(client, topic, 1)
    return topics


def restart(fleet: Fleet, name: str) -> None:
    """kill -9, and start it again."""
    fleet.brokers[name].kill()
    fleet.start_broker(name)


def committed(fleet: Fleet, topic: str, count: int) -> list[bytes]:
    """The values that read_committed consumers get, once there are as many, and all is stable."""
    reader = IsolatedReader(topic, 1, committed=True)
    values: list[bytes] = []
    give_up = time.monotonic() + _SECONDS
    with RawClient(fleet.address()) as client:
        while len(values) < count or reader.stable != reader.high or not reader.is_at_end():
            values += [record.value or b"" for _, record in reader.poll(client, 100)]
            assert time.monotonic() < give_up, (topic, values, reader)
    return values


def producer_of(fleet: Fleet, name: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": fleet.bootstrap(), "transactional.id": name, "linger.ms": 0,
            "transaction.timeout.ms": 20_000,
        }
    )  # fmt: skip


def test_a_transaction_is_whole_whichever_broker_is_killed(fleet: Fleet) -> None:
    topics = created(fleet, "killed")
    rng = random.Random(7)
    done: list[bytes] = []
    producer = producer_of(fleet, "wide")
    producer.init_transactions(_SECONDS)
    for number in range(9):
        value, commit = b"%d" % number, number % 4 != 3
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, value)
        if number % 6 == 1:
            assert producer.flush(_SECONDS) == 0
            restart(fleet, rng.choice("abc"))
        try:
            if commit:
                producer.commit_transaction(_SECONDS)
                done.append(value)
            else:
                producer.abort_transaction(_SECONDS)
        except KafkaException as e:
            if not e.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(_SECONDS)
        if number % 6 == 4:
            restart(fleet, rng.choice("abc"))  # some of the brokers have not ended it
    for topic in topics:
        assert committed(fleet, topic, len(done)) == done


async def test_aiokafka_over_three_brokers(fleet: Fleet) -> None:
    topics = created(fleet, "aiokafka")
    producer = AIOKafkaProducer(bootstrap_servers=fleet.bootstrap(), transactional_id="aio")
    await producer.start()
    for number in range(6):
        await producer.begin_transaction()
        for topic in topics:
            await producer.send(topic, b"%d" % number, partition=0)
        await (producer.abort_transaction() if number % 3 == 2 else producer.commit_transaction())
    await producer.stop()
    for topic in topics:
        assert committed(fleet, topic, 4) == [b"0", b"1", b"3", b"4"]


def test_copies_are_exact_while_brokers_are_killed(fleet: Fleet, tmp_path: Path) -> None:
    """The offsets are at the home broker, the sources and the targets are not."""

    def kill(rng: random.Random) -> None:
        restart(fleet, rng.choice("abc"))

    copy(tmp_path, fleet.address(), ("confluent-kafka",), [kill], turns=2)
