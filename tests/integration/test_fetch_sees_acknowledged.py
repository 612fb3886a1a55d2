"""A fetch behind an acknowledged produce shows its records, however warm the gateway's lease is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, fetch, produce, values
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

_TIMES = 150
_BOUND = 0.2 + 2.0  # and what a busy machine takes
"""Seconds: `watermarks.MAX_AGE_SECONDS`, and what a busy machine adds."""


def _warm(client: RawClient, topic: str) -> None:
    """Let the gateway have its lease, and the topic's first records in memory."""
    produce(client, topic, b"0")
    for _ in range(10):
        fetch(client, topic, 0)
        time.sleep(0.01)


def test_a_fetch_from_an_earlier_offset_shows_what_was_acknowledged(
    client: RawClient, other: RawClient
) -> None:
    create_topic(client, "acknowledged")
    _warm(other, "acknowledged")
    for number in range(1, _TIMES + 1):
        assert produce(client, "acknowledged", b"%d" % number) == number
        found = fetch(other, "acknowledged", number // 2)
        assert found.high_watermark == number + 1
        assert values(found)[-1] == b"%d" % number


def test_through_another_gateway_it_is_seen_within_the_bound(tmp_path: Path) -> None:
    with Cluster(tmp_path, gateway_args=("--workers", "2")) as cluster:
        clients = [RawClient(cluster.address) for _ in range(8)]  # some at each of the workers
        create_topic(clients[0], "elsewhere")
        for client in clients:
            _warm(client, "elsewhere")
        for _ in range(3):
            end = produce(clients[0], "elsewhere", b"new") + 1
            acknowledged = time.monotonic()
            for client in clients:
                while fetch(client, "elsewhere", 0).high_watermark < end:
                    assert time.monotonic() - acknowledged < _BOUND
        for client in clients:
            client.socket.close()
