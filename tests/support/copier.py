"""A copy job in a process of its own: `python -m tests.support.copier JOB`, a JSON object.

It reads a topic as a member of a group, and writes each batch of records to the same partitions of
another topic in a transaction that also commits the group's offsets. It goes on until it is killed;
whatever fails, it begins again from what is committed. Each process has a transactional id of its
own; so a transaction of one that died stays open until it times out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AioKafkaError
from kafka.errors import KafkaError as PlainKafkaError

from tests.support.confluent import LASTING

SESSION_MS, HEARTBEAT_MS, TRANSACTION_MS = 3_000, 200, 3_000
_BATCH = 50
_SECONDS = 30.0

Job = Mapping[str, Any]


def copy_by_confluent(job: Job) -> None:
    """librdkafka."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "transactional.id": job["id"],
            "transaction.timeout.ms": TRANSACTION_MS,
            "log_level": 0,
            "linger.ms": 0,
            **LASTING,
        }
    )
    producer.init_transactions(_SECONDS)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": job["group"],
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "log_level": 0,
        }
    )
    consumer.subscribe([job["source"]])
    try:
        while True:
            found = [m for m in consumer.consume(_BATCH, timeout=0.2) if m.error() is None]
            if not found:
                continue
            producer.begin_transaction()
            for message in found:
                value, to = message.value(), message.partition()
                assert to is not None
                producer.produce(job["target"], value, partition=to)
            metadata = consumer.consumer_group_metadata()
            ends = {message.partition(): (message.offset() or 0) + 1 for message in found}
            places = [
                confluent_kafka.TopicPartition(job["source"], number or 0, end)
                for number, end in ends.items()
            ]
            producer.send_offsets_to_transaction(places, metadata, _SECONDS)
            _repeat_commit(producer)
    finally:
        consumer.close()


def _repeat_commit(producer: confluent_kafka.Producer) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            producer.commit_transaction(_SECONDS)
        except confluent_kafka.KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def copy_by_kafka_python(job: Job) -> None:
    """kafka-python, of which two answers are not taken as they are: see the next functions."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=job["bootstrap"],
        transactional_id=job["id"],
        transaction_timeout_ms=TRANSACTION_MS,
        retry_backoff_ms=20,
    )
    producer.init_transactions()
    consumer = kafka.KafkaConsumer(
        job["source"],
        bootstrap_servers=job["bootstrap"],
        group_id=job["group"],
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_records=_BATCH,
    )
    try:
        while True:
            found = cast("dict[Any, list[Any]]", consumer.poll(200))
            if not found:
                continue
            member = member_of_kafka_python(consumer)
            producer.begin_transaction()
            sent = [
                producer.send(job["target"], record.value, partition=place.partition)
                for place, records in found.items()
                for record in records
            ]
            ends = {
                place: kafka.structs.OffsetAndMetadata(records[-1].offset + 1, "", -1)
                for place, records in found.items()
            }
            producer.send_offsets_to_transaction(ends, member)
            commit_by_kafka_python(producer, sent)
    finally:
        producer.close(0)
        consumer.close(autocommit=False)


def member_of_kafka_python(consumer: kafka.KafkaConsumer) -> Any:
    """The member that the offsets are of.

    The client forgets its member and generation when a heartbeat is refused. Offsets of nobody are
    not checked (KIP-447; with Apache Kafka, too): they would count beside the next owner's.
    """
    member = consumer.group_metadata()
    if not member.member_id:
        raise kafka.errors.UnknownMemberIdError("the group has expelled this member")
    return member


def commit_by_kafka_python(producer: kafka.KafkaProducer, sent: Sequence[Any]) -> None:
    """Commit when all batches are acknowledged.

    If a batch of a transaction that has timed out is refused during the commit, the client takes
    its next epoch, drops the transaction, and reports the commit as done; so do not let it.
    """
    producer.flush(_SECONDS)
    for each in sent:
        each.get(_SECONDS)
    producer.commit_transaction()


def copy_by_aiokafka(job: Job) -> None:
    """aiokafka, whose offsets carry no member: see `transaction.with_group_offsets`."""
    asyncio.run(_copy_by_aiokafka(job))


class _AfterTransactions(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Partitions are revoked between transactions only.

    The client rejoins in the background, and then asks for offsets without `require_stable`
    (KIP-447), which answers with those before a transaction that has not ended (with Apache Kafka,
    too): it would copy again what that transaction copies.
    """

    def __init__(self) -> None:
        self.transaction = asyncio.Lock()

    async def on_partitions_revoked(self, revoked: object) -> None:
        async with self.transaction:
            pass

    async def on_partitions_assigned(self, assigned: object) -> None:
        pass


async def _copy_by_aiokafka(job: Job) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=job["bootstrap"],
        transactional_id=job["id"],
        transaction_timeout_ms=TRANSACTION_MS,
        retry_backoff_ms=20,
    )
    await producer.start()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        group_id=job["group"],
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_records=_BATCH,
    )
    rebalances = _AfterTransactions()
    consumer.subscribe([job["source"]], listener=rebalances)
    try:
        await consumer.start()
        while True:
            found = cast("dict[Any, list[Any]]", await consumer.getmany(timeout_ms=200))
            if not found:
                continue
            async with rebalances.transaction, producer.transaction():
                for place, records in found.items():
                    for record in records:
                        to = place.partition
                        await producer.send(job["target"], record.value, partition=to)
                ends = {place: records[-1].offset + 1 for place, records in found.items()}
                await producer.send_offsets_to_transaction(ends, job["group"])
    finally:
        await consumer.stop()
        await producer.stop()


COPIERS: dict[str, Callable[[Job], None]] = {
    "confluent-kafka": copy_by_confluent,
    "kafka-python": copy_by_kafka_python,
    "aiokafka": copy_by_aiokafka,
}
ERRORS = (confluent_kafka.KafkaException, PlainKafkaError, AioKafkaError, OSError, AssertionError)


def run(job: Job) -> None:
    """Copy for ever, with a new client after each error."""
    while True:
        try:
            COPIERS[job["kind"]](job)
        except ERRORS as e:
            print(time.time(), repr(e), flush=True)
            time.sleep(0.1)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
