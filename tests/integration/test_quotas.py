"""Quotas with real processes: rates that hold, bystanders that are not slowed, and restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.cluster import Cluster
from tests.support.kafka_calls import (
    VERSION,
    create_topic,
    fetch_request,
    produce,
    produce_request,
)
from tests.support.quota_calls import alter, clear, describe
from tests.support.raw_client import RawClient

RATE = 400_000
SIZE = 10_000
MOST_SECONDS = 12.0
LONG, WAITS = 0.7, 3
"""Seconds of a wait that ends a window of two samples, and how many of them are seen."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("quotas")
    args = ("--quota-window-num", "2")
    # A busy disk must not be what bounds the rates.
    with Cluster(folder, ("--wal-fsync", "never"), args) as cluster:
        with RawClient(cluster.address) as client:
            create_topic(client, "t", 2)
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(cluster.address, 30) as client:
        yield client
    with RawClient(cluster.address, 30) as client:
        clear(client)


class Repeated(threading.Thread):
    """Calls something again and again, and counts the bytes that it returns.

    A client uses what its window leaves it at once, and waits for the rest of the window: from the
    end of one long wait to that of another it has whole windows. On a busy machine it may come to
    wait a little after each request instead: then its rate is that of the last seconds.
    """

    def __init__(self, cluster: Cluster, name: str, call: Callable[[RawClient], int]) -> None:
        super().__init__()
        self._client = RawClient(cluster.address, 30, name)
        self._call = call
        self.stop = threading.Event()
        self.total = 0
        self.seconds = self.longest = 0.0
        self.waited: list[tuple[float, int]] = []
        """When each long wait was over, and the bytes before it."""
        self.even: list[tuple[float, int]] = []
        """When a request was answered, and the bytes before it, after MOST_SECONDS / 2."""

    @property
    def rate(self) -> float:
        """Bytes a second."""
        seen = self.waited if len(self.waited) == WAITS else self.even
        (began, before), (ended, after) = seen[0], seen[-1]
        return (after - before) / (ended - began)

    def run(self) -> None:
        start = time.monotonic()
        with self._client as client:
            while not self.stop.is_set() and len(self.waited) < WAITS:
                before, began = self.total, time.monotonic()
                self.total += self._call(client)
                now = time.monotonic()
                self.seconds = now - start
                self.longest = max(self.longest, now - began)
                if now - began > LONG:
                    self.waited.append((now, before))
                if now - start > MOST_SECONDS / 2:
                    self.even.append((now, before))
                if now - start > MOST_SECONDS:
                    return


def _produce(client: RawClient) -> int:
    answer = client.call(produce_request("t", bytes(SIZE)), ProduceResponse, VERSION["produce"])
    assert not answer.responses[0].partition_responses[0].error_code
    return SIZE


def _fetch(client: RawClient) -> int:
    answer = client.call(fetch_request("t", 0, max_bytes=SIZE), FetchResponse, VERSION["fetch"])
    parts = [part for topic in answer.responses for part in topic.partitions]
    size = sum(len(cast(bytes, part.records or b"")) for part in parts)
    assert size or answer.throttle_time_ms
    return size


@pytest.mark.long
def test_clients_get_their_rates_and_bystanders_all_they_want(
    cluster: Cluster, admin: RawClient
) -> None:
    produce(admin, "t", bytes(SIZE))
    greedy = {"client-id": "greedy"}
    assert alter(admin, greedy, producer_byte_rate=RATE, consumer_byte_rate=RATE) == (0, None)
    producer = Repeated(cluster, "greedy", _produce)
    consumer = Repeated(cluster, "greedy", _fetch)
    bystander = Repeated(cluster, "bystander", _produce)
    for each in (producer, consumer, bystander):
        each.start()
    for each in (producer, consumer):
        each.join()
    bystander.stop.set()
    bystander.join()
    # A machine that is slow for its own reasons leaves everybody less.
    is_quick = bystander.total / bystander.seconds > 4 * RATE
    for each in (producer, consumer):
        assert each.rate < 1.1 * RATE
        assert each.rate > 0.7 * RATE or not is_quick


def test_quotas_are_answered_as_they_were_set_and_survive_restarts(
    cluster: Cluster, admin: RawClient
) -> None:
    assert alter(admin, {"user": None}, request_percentage=50.5, version=0) == (0, None)
    assert alter(admin, {"user": "alice", "client-id": None}, producer_byte_rate=7.0) == (0, None)
    assert alter(admin, {"ip": "192.0.2.7"}, connection_creation_rate=3.0) == (0, None)
    code, message = alter(admin, {"user": "alice"}, no_such_key=1.0)
    assert (code, message) == (ErrorCode.INVALID_REQUEST, "Invalid configuration key no_such_key")
    assert alter(admin, {"user": "bob"}, validate_only=True, producer_byte_rate=1.0) == (0, None)
    everything = {
        (("user", None),): {"request_percentage": 50.5},
        (("client-id", None), ("user", "alice")): {"producer_byte_rate": 7.0},
        (("ip", "192.0.2.7"),): {"connection_creation_rate": 3.0},
    }
    assert describe(admin) == describe(admin, version=0) == everything
    assert list(describe(admin, ("user", 2, None), strict=True)) == [(("user", None),)]
    cluster.broker.kill()
    cluster.gateway.kill()
    cluster.start_broker()
    cluster.start_gateway()
    with RawClient(cluster.address, 30) as client:
        until = time.monotonic() + 30
        while (found := describe(client)) != everything and time.monotonic() < until:
            time.sleep(0.05)
        assert found == everything


@pytest.mark.long
def test_changes_of_partitions_are_refused_to_clients_that_know_the_error(
    cluster: Cluster,
) -> None:
    with RawClient(cluster.address, 30, "maker") as client:
        assert alter(client, {"client-id": "maker"}, controller_mutation_rate=2.0) == (0, None)
        topics = [
            CreatableTopic(name=f"made-{n}", num_partitions=3, replication_factor=1)
            for n in range(3)
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=10_000)
        began = time.monotonic()
        answer = client.call(request, CreateTopicsResponse, 6)
        assert [each.error_code for each in answer.topics] == [0, 0, 89]  # 2 samples of 2
        assert 500 < answer.throttle_time_ms <= 1_000
        late = CreateTopicsRequest(topics=topics[2:], timeout_ms=10_000)
        assert client.call(late, CreateTopicsResponse, 6).topics[0].error_code == 0
        assert time.monotonic() - began > 0.5  # muted, and the debt is paid
        deleted = DeleteTopicsRequest(
            topic_names=[topic.name for topic in topics], timeout_ms=10_000
        )
        answer_to_old = client.call(deleted, DeleteTopicsResponse, 4)
        assert not any(each.error_code for each in answer_to_old.responses)
        assert answer_to_old.throttle_time_ms > 5_000
    with RawClient(cluster.address, 30) as client:
        assert alter(client, {"client-id": "maker"}, controller_mutation_rate=None) == (0, None)
