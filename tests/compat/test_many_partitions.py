"""Real consumers of sixty partitions: assign, seek, pause, resume, unassign; nothing but what was
produced, in its order, without gap or repeat. Those that use fetch sessions use them here."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import pytest

from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.support.cluster import Cluster
from tests.support.consumers import CONSUMER_NAMES, CONSUMERS, Arrived, Consumer
from tests.support.kafka_calls import VERSION, produce_request
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

PARTITIONS = range(60)
PER_BATCH = 5
SECONDS = 60.0


class Run:
    """A consumer, what was produced for it, and what has arrived."""

    def __init__(self, client: RawClient, topic: str, consumer: Consumer) -> None:
        self.consumer = consumer
        self._client = client
        self._topic = topic
        self._ends: dict[int, int] = dict.fromkeys(PARTITIONS, 0)
        self._next: dict[int, int] = dict.fromkeys(PARTITIONS, 0)
        self.arrived: dict[int, int] = defaultdict(int)

    def produce(self, batches: int) -> None:
        """So many batches to every partition."""
        for _ in range(batches):
            for partition in PARTITIONS:
                end = self._ends[partition]
                values = [f"{partition}:{end + n} ".encode() * 5 for n in range(PER_BATCH)]
                request = produce_request(self._topic, *values, partition=partition)
                answer = self._client.call(request, ProduceResponse, VERSION["produce"])
                produced = answer.responses[0].partition_responses[0]
                assert (produced.error_code, produced.base_offset) == (0, end)
                self._ends[partition] += PER_BATCH

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(partition, offset)
        self._next[partition] = offset

    def take(self, records: Arrived, allowed: Iterable[int]) -> None:
        for partition, offset, value in records:
            assert partition in allowed
            assert offset == self._next[partition], f"partition {partition}: gap or repeat"
            assert value == f"{partition}:{offset} ".encode() * 5
            self._next[partition] += 1
            self.arrived[partition] += 1

    def until(self, done: Callable[[], bool], allowed: Iterable[int] = PARTITIONS) -> None:
        give_up = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < give_up, self.left(allowed)
            self.take(self.consumer.poll(), allowed)

    def left(self, partitions: Iterable[int]) -> dict[int, int]:
        """How much of each is still to come."""
        left = {p: self._ends[p] - self._next[p] for p in partitions}
        return {p: count for p, count in left.items() if count}


@pytest.fixture(params=CONSUMER_NAMES)
def run(request: pytest.FixtureRequest, shared_cluster: Cluster) -> Iterator[Run]:
    topic = f"many-{request.param}"
    with RawClient(shared_cluster.address) as client:
        new = CreatableTopic(name=topic, num_partitions=len(PARTITIONS), replication_factor=1)
        client.call(CreateTopicsRequest(topics=[new]), CreateTopicsResponse, 5)
        consumer = CONSUMERS[request.param](shared_cluster.bootstrap, topic)
        try:
            yield Run(client, topic, consumer)
        finally:
            consumer.close()


def test_what_arrives_is_what_was_produced(run: Run) -> None:
    run.produce(3)
    run.consumer.assign(PARTITIONS)
    run.until(lambda: sum(run.arrived.values()) > 400)

    paused = [p for p in PARTITIONS if p % 3 == 0]
    others = [p for p in PARTITIONS if p % 3]
    run.consumer.pause(paused)
    run.produce(2)
    run.until(lambda: not run.left(others), others)

    for partition in PARTITIONS[::5]:  # into the middle of a batch
        run.seek(partition, 7)
    run.consumer.resume(paused)
    run.until(lambda: not run.left(PARTITIONS))

    kept = PARTITIONS[20:]
    run.consumer.assign(kept)
    run.produce(1)
    run.until(lambda: not run.left(kept), kept)
    assert all(count == PER_BATCH for count in run.left(PARTITIONS[:20]).values())
