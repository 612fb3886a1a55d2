"""What kafka-python does not report to a copy job, and that the copier notices it.

It is the same with Apache Kafka 4.3, whose answers are the same (docs/transactions.md).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import InvalidProducerEpochError

from quafka_proto.schema.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.support.cluster import Cluster
from tests.support.copier import commit_by_kafka_python
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient
from tests.support.transactions import read

pytestmark = pytest.mark.long

_SECONDS = 20.0


@contextmanager
def timed_out(cluster: Cluster, topic: str) -> Generator[tuple[KafkaProducer, Any]]:
    """A producer whose transaction was aborted before its only record was sent, and the record."""
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        transactional_id=topic,
        transaction_timeout_ms=100,
        linger_ms=60_000,
    )
    try:
        producer.init_transactions()
        producer.begin_transaction()
        sent = producer.send(topic, b"refused", partition=0)
        wait_aborted(cluster, topic)
        yield producer, sent
    finally:
        producer.close(0)


def wait_aborted(cluster: Cluster, transactional_id: str) -> None:
    asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    deadline = time.monotonic() + _SECONDS
    with RawClient(cluster.address) as client:
        while time.monotonic() < deadline:
            answer = client.call(asked, DescribeTransactionsResponse, 0)
            if answer.transaction_states[0].transaction_state == "CompleteAbort":
                return
            time.sleep(0.05)
    raise AssertionError("the transaction does not time out")


def test_a_commit_of_what_a_timeout_has_aborted(group_cluster: Cluster) -> None:
    topic = "kafka-python-late"
    with RawClient(group_cluster.address) as client:
        create_topic(client, topic, 1)
    with timed_out(group_cluster, topic) as (producer, sent):
        producer.commit_transaction()  # reports success, but the record has failed
        with pytest.raises(InvalidProducerEpochError):
            sent.get(_SECONDS)
    with (
        timed_out(group_cluster, topic) as (producer, sent),
        pytest.raises(InvalidProducerEpochError),
    ):
        commit_by_kafka_python(producer, [sent])
    assert read(group_cluster.bootstrap, topic, "read_uncommitted", 1) == []
