"""Large produces in shared memory, in whole programs: the same bytes, also over kills."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.cluster import Cluster, Process
from tests.support.confluent import LASTING, consume
from tests.support.prometheus import get

pytestmark = pytest.mark.long

VALUE = ("--mesh-records", "value")
SIZE = 100_000
RECORDS = 120


def value(number: int) -> bytes:
    return number.to_bytes(4, "big") * (SIZE // 4)


def send(producer: Producer, numbers: range) -> None:
    for number in numbers:
        producer.produce("t", value(number), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def producer_of(cluster: Cluster) -> Producer:
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5}
    return Producer({**settings, "log_level": 0, **LASTING})


def check(cluster: Cluster, records: int) -> None:
    """Every record is there once, in order."""
    found = [message.value() for message in consume(cluster.bootstrap, "t", records)]
    assert found == [value(number) for number in range(records)]


def peer_of(process: Process) -> dict[str, Any]:
    """The peer whose ops were the largest; in a store, a gateway has one more connection."""
    _, _, body = get(str(process.ready["operations"]), "/mesh")
    peers: list[dict[str, Any]] = json.loads(body)["peers"]
    return max(peers, key=lambda peer: int(peer["memory_bytes"]), default={})


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.02)


@pytest.mark.parametrize(("broker", "gateway"), [((), ()), (VALUE, ()), ((), VALUE)])
def test_produces_arrive_whole(
    tmp_path: Path, broker: tuple[str, ...], gateway: tuple[str, ...]
) -> None:
    with Cluster(tmp_path, broker, gateway) as cluster:
        both = not broker and not gateway
        producer = producer_of(cluster)
        send(producer, range(RECORDS // 2))  # the first ones travel in packets
        if both:
            until(lambda: peer_of(cluster.gateway).get("memory_shared"))
        send(producer, range(RECORDS // 2, RECORDS))
        check(cluster, RECORDS)
        for process in (cluster.broker, cluster.gateway):
            peer = peer_of(process)
            assert peer["memory_shared"] is both
            assert (peer["memory_bytes"] >= RECORDS // 2 * SIZE) is both
            _, _, page = get(str(process.ready["operations"]), "/statusz")
            assert (">memory, " in page) is both


@pytest.mark.parametrize("killed", ["broker", "gateway"])
def test_no_kill_loses_or_doubles_what_lies_in_memory(tmp_path: Path, killed: str) -> None:
    with Cluster(tmp_path) as cluster:
        producer = producer_of(cluster)
        send(producer, range(10))
        until(lambda: peer_of(cluster.gateway).get("memory_shared"))
        end = 10
        for _ in range(3):
            begin, end = end, end + 30
            for number in range(begin, end):
                producer.produce("t", value(number), partition=0)
                if number == begin + 5:
                    producer.poll(0.01)  # some are under way
            if killed == "broker":
                cluster.broker.kill()
                cluster.start_broker()
            else:
                cluster.gateway.kill()
                cluster.start_gateway()
            assert producer.flush(60) == 0
        check(cluster, end)
        send(producer, range(end, end + 5))
        until(lambda: peer_of(cluster.gateway).get("memory_shared"))
