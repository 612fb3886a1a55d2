"""A consumer that finds nothing for a while, over real processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_proto.schema.fetch import FetchResponse
from tests.support.cluster import Cluster
from tests.support.fetch_calls import PARTITIONS, V, create, get, part, put, request_of, woken
from tests.support.kafka_calls import values
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

WAIT, LONG_WAIT = 50, 10_000
IDLE_POLLS = 20
SETTLING_POLLS = 12
"""More than 200 ms, after which an op at the broker serves them."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("idle")) as running:
        yield running


class Session:
    """A fetch session of all partitions of a topic."""

    def __init__(self, client: RawClient, topic: str, records: int = 0) -> None:
        """`records`: of the first partition, that it has read."""
        self._client = client
        self._topic = topic
        wanted = [part(n, records if n == 0 else 0) for n in range(PARTITIONS)]
        begin = request_of(topic, *wanted, session=(0, 0))
        self._id = client.call(begin, FetchResponse, V).session_id
        self._epoch = 0

    def poll(self, wait: int = WAIT) -> int:
        """Returns how many partitions had news."""
        self._epoch += 1
        request = request_of(self._topic, session=(self._id, self._epoch), wait=wait)
        return len(get(self._client, request))

    def send(self) -> None:
        self._epoch += 1
        request = request_of(self._topic, session=(self._id, self._epoch), wait=LONG_WAIT)
        self._client.send(request, V)


def parked(cluster: Cluster) -> float:
    """Fetches that are parked at the broker."""
    return Scrape(str(cluster.broker.ready["operations"]))("quafka_broker_parked_fetches")


def test_an_op_stays_parked_between_idle_polls_and_goes_with_its_client(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        create(client, "quiet")
        session = Session(client, "quiet")
        assert [session.poll() for _ in range(SETTLING_POLLS)] == [0] * SETTLING_POLLS
        began = time.monotonic()
        for _ in range(IDLE_POLLS):
            assert session.poll() == 0
            assert parked(cluster) == 1
        assert time.monotonic() - began >= IDLE_POLLS * WAIT / 1000
    give_up = time.monotonic() + 30
    while parked(cluster):
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_a_consumer_goes_on_when_the_broker_was_restarted(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, RawClient(cluster.address) as client:
        create(client, "t")
        session = Session(client, "t")
        for _ in range(SETTLING_POLLS):
            session.poll()
        cluster.broker.kill()
        cluster.start_broker()
        assert [session.poll() for _ in range(SETTLING_POLLS)] == [0] * SETTLING_POLLS
        put(client, "t", b"new", partition=1)
        assert session.poll() == 1


def test_a_record_ends_the_wait(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client, RawClient(cluster.address) as other:
        create(client, "woken")
        for number in range(4):
            session = Session(client, "woken", number)
            for _ in range(SETTLING_POLLS):
                session.poll()
            session.send()
            put(other, "woken", b"%d" % number)
            (data,) = woken(client)
            assert values(data) == [b"%d" % number]
