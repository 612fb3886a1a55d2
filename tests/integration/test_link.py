"""Produce and consume over bad links: all of it arrives, once and in order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.late_answers import LateAnswers
from tests.support.link import Link

pytestmark = pytest.mark.long

LINKS: dict[str, dict[str, Any]] = {
    "far": {"delay_ms": 50},
    "loss": {"loss": 0.01, "delay_ms": 1},
    "farther": {"delay_ms": 100, "jitter_ms": 10, "loss": 0.05},
    "much loss": {"loss": 0.05, "delay_ms": 5},
    "repeats and jitter": {"repeat": 0.05, "delay_ms": 2, "jitter_ms": 6},
    "narrow": {"rate": 2_000_000, "delay_ms": 10},
    "everything": {
        "delay_ms": 10, "jitter_ms": 5, "loss": 0.02, "repeat": 0.01, "rate": 5_000_000,
    },
}  # fmt: skip
RECORDS = 1_000
VALUE = 1_000


@contextmanager
def linked(
    folder: Path, gateway_args: tuple[str, ...] = (), **faults: Any
) -> Iterator[tuple[Cluster, Link]]:
    """A broker, a link to it, and a gateway at the other end."""
    cluster = Cluster(folder, gateway_args=gateway_args)
    with cluster.with_link(lambda broker: Link(broker, **faults)) as link:
        yield cluster, link


def values(count: int) -> list[bytes]:
    return [b"%d:" % i + random.Random(i).randbytes(VALUE) for i in range(count)]


class Sending:
    """An idempotent producer in a thread."""

    def __init__(self, bootstrap: str, sent: list[bytes], pause: float = 0.0) -> None:
        self._thread = threading.Thread(target=self._run, args=(bootstrap, sent, pause))
        self.errors: list[str] = []
        self._thread.start()

    def finish(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert not self.errors

    def _run(self, bootstrap: str, sent: list[bytes], pause: float) -> None:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
             "reconnect.backoff.max.ms": 200, "retry.backoff.max.ms": 200}
        )  # fmt: skip
        for value in sent:
            producer.produce("t", value, on_delivery=self._delivered)
            producer.poll(pause)
        if producer.flush(50):
            self.errors.append("not everything was delivered")

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.errors.append(str(error))


@pytest.mark.parametrize("faults", LINKS.values(), ids=LINKS)
def test_nothing_is_lost_over(tmp_path: Path, faults: dict[str, Any]) -> None:
    with linked(tmp_path, **faults) as (cluster, _):
        sent = values(RECORDS)
        Sending(cluster.bootstrap, sent).finish()
        assert [m.value() for m in consume(cluster.bootstrap, "t", RECORDS)] == sent


@pytest.mark.parametrize("mtu", [1_300, 1_500, 9_000])
def test_a_link_that_swallows_large_datagrams_gets_smaller_ones(tmp_path: Path, mtu: int) -> None:
    with linked(tmp_path, mtu=mtu) as (cluster, _):
        sent = values(300)
        Sending(cluster.bootstrap, sent).finish()
        assert [m.value() for m in consume(cluster.bootstrap, "t", 300)] == sent


def test_a_link_that_begins_to_swallow_large_datagrams(tmp_path: Path) -> None:
    with linked(tmp_path) as (cluster, link):
        sent = values(2_000)
        sending = Sending(cluster.bootstrap, sent, 0.001)
        time.sleep(0.5)
        link.change(mtu=1_300)
        sending.finish()
        assert [m.value() for m in consume(cluster.bootstrap, "t", 2_000)] == sent


@pytest.mark.parametrize("cut", ["up", "down", "both"])
def test_a_link_that_is_cut_for_a_while(tmp_path: Path, cut: str) -> None:
    with linked(tmp_path, delay_ms=1) as (cluster, link):
        sent = values(1_000)
        sending = Sending(cluster.bootstrap, sent, 0.001)
        time.sleep(0.4)
        link.change(cut=cut)
        time.sleep(2.5)
        link.change(cut="")
        sending.finish()
        assert [m.value() for m in consume(cluster.bootstrap, "t", 1_000)] == sent


def test_what_was_stored_and_never_answered_is_not_stored_twice(tmp_path: Path) -> None:
    """The first of three batches in flight is stored, the second lost, the third comes through.

    librdkafka must not be told that the third is out of order before it sends the first again.
    """
    with (
        LateAnswers(0.25) as late,
        linked(tmp_path, ("--advertised-listener", late.address)) as (cluster, link),
    ):
        late.target = cluster.address
        producer = Producer(
            {"bootstrap.servers": late.address, "enable.idempotence": True, "linger.ms": 0}
        )
        producer.produce("t", b"0")
        assert producer.flush(20) == 0
        for cut, value in (("down", b"1"), ("both", b"2")):
            link.change(cut=cut)
            producer.produce("t", value)
            producer.poll(0.3)
        lost = cluster.logs.count("no connection to")
        until = time.monotonic() + 30
        while cluster.logs.count("no connection to") == lost:
            assert time.monotonic() < until
            time.sleep(0.01)
        producer.produce("t", b"3")
        producer.poll(0.1)
        link.change(cut="")
        assert producer.flush(20) == 0
        assert [m.value() for m in consume(cluster.bootstrap, "t", 4)] == [b"0", b"1", b"2", b"3"]
