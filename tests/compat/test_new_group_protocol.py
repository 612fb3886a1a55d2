"""Clients that ask for the group protocol of KIP-848 learn at once that it is not served."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError

from tests.support.cluster import Cluster


def test_librdkafka_reports_it(shared_cluster: Cluster) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": shared_cluster.bootstrap,
            "group.id": "new",
            "group.protocol": "consumer",
        }
    )
    try:
        consumer.subscribe(["t"])
        began = time.monotonic()
        message = consumer.poll(10)
        assert message is not None, "silence"
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._FATAL
        assert "not supported" in error.str()
        assert time.monotonic() - began < 5
    finally:
        consumer.close()
