"""Topics are changed while brokers are killed, one or one of several: nothing answered is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from quafka_proto.schema.partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from tests.support.admin_calls import (
    TOPIC,
    describe_configs,
    grow,
    own_configs,
    resource,
    set_config,
)
from tests.support.cluster import Cluster
from tests.support.fleet import Fleet
from tests.support.kafka_calls import create_topic, metadata, produce
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

E = ErrorCode
KILLS = 2
HERE, THERE = "orders", "logs.web"


def partitions_of(client: RawClient, topic: str) -> int:
    return len(metadata(client, topic).topics[0].partitions)


class Admin:
    """Changes a topic again and again, by steps of one, and remembers what was answered."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.tried = self.done = 1
        self.errors: set[int] = set()
        self.failure: BaseException | None = None
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self.failure is None, self.failure

    def await_progress(self) -> None:
        give_up, before = time.monotonic() + 20, self.done
        while self.done < before + 5:
            assert time.monotonic() < give_up
            assert self.failure is None, self.failure
            time.sleep(0.01)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
        except BaseException as e:
            self.failure = e

    def _step(self) -> None:
        step = self.done + 1
        self.tried = max(self.tried, step)
        # A broker that is away is waited for, for as long as a client of this kind waits.
        with RawClient(self._cluster.address, timeout=30) as client:
            grown = grow(client, self._topic, step)
            # One that was not answered may have been made all the same.
            if grown == E.INVALID_PARTITIONS:
                grown = 0 if partitions_of(client, self._topic) >= step else grown
            codes = {grown, set_config(client, self._topic, "segment.ms", str(step))}
        self.errors |= codes
        if codes == {0}:
            self.done = step


def test_no_change_that_was_answered_is_lost_with_the_broker(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        create_topic(client, "t")
    admin = Admin(cluster, "t")
    for _ in range(KILLS):
        admin.await_progress()
        cluster.broker.kill()
        cluster.start_broker()
    admin.await_progress()
    admin.finish()
    cluster.broker.kill()
    cluster.start_broker()
    with RawClient(cluster.address) as client:
        found = partitions_of(client, "t")
        assert admin.done <= found <= admin.tried
        (text,) = own_configs(client, "t").values()
        assert admin.done <= int(text or "") <= admin.tried
        assert admin.errors <= {0, E.REQUEST_TIMED_OUT}


def test_a_broker_that_is_away_is_said_to_be(cluster: Cluster) -> None:
    with RawClient(cluster.address, timeout=20) as client:
        create_topic(client, "t")
        cluster.broker.kill()
        (found,) = describe_configs(client, 4, resource(TOPIC, "t"))
        assert (found.error_code, found.configs) == (E.REQUEST_TIMED_OUT, [])
        cluster.start_broker()
        until_asked(client, "t")  # for a quarter of a second others are answered at once
        assert own_configs(client, "t") == {}


# --- several brokers ------------------------------------------------------------------------


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, [("logs.*", "b"), ("*", "a")]) as running:
        yield running


def until_there(client: RawClient, *topics: str) -> None:
    give_up = time.monotonic() + 30
    while any(metadata(client, topic).topics[0].error_code for topic in topics):
        assert time.monotonic() < give_up
        time.sleep(0.05)


def until_asked(client: RawClient, topic: str) -> None:
    """Until administrators reach the topic's broker; Metadata shows it as it was last seen."""
    give_up = time.monotonic() + 30
    while describe_configs(client, 4, resource(TOPIC, topic))[0].error_code:
        assert time.monotonic() < give_up
        time.sleep(0.05)


def sizes(client: RawClient) -> dict[str, tuple[int, dict[str, int]]]:
    """By broker folder: its error, and the bytes of its topics."""
    answer = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    return {
        result.log_dir: (
            result.error_code,
            {t.name: sum(p.partition_size for p in t.partitions) for t in result.topics},
        )
        for result in answer.results
    }


def test_every_call_goes_to_the_topics_broker(fleet: Fleet) -> None:
    with RawClient(fleet.address()) as client:
        until_there(client, HERE, THERE)
        assert grow(client, HERE, 2) == grow(client, THERE, 3) == 0
        assert set_config(client, HERE, "segment.ms", "1") == 0
        assert set_config(client, THERE, "segment.ms", "2") == 0
        produce(client, HERE, b"x")
        both = describe_configs(
            client, 4, *(resource(TOPIC, name, "segment.ms") for name in (THERE, HERE, THERE))
        )
        assert [found.configs[0].value for found in both] == ["2", "1", "2"]
        page = client.call(
            DescribeTopicPartitionsRequest(topics=[]), DescribeTopicPartitionsResponse, 0
        )
        counts = {topic.name: len(topic.partitions) for topic in page.topics}
        assert counts == {HERE: 2, THERE: 3}

        mesh = {name: broker.ready["mesh"] for name, broker in fleet.brokers.items()}
        folders = {name: f"{mesh[name]}:{fleet.folder}/data-{name}/wal" for name in mesh}
        found = sizes(client)
        assert found.keys() == set(folders.values())
        assert found[folders["b"]] == (0, {THERE: 0})
        error, here = found[folders["a"]]
        assert (error, set(here), here[HERE] > 60) == (0, {HERE}, True)

        fleet.brokers["b"].kill()
        began = time.monotonic()
        assert set_config(client, HERE, "segment.ms", "3") == 0
        assert own_configs(client, HERE) == {"segment.ms": "3"}
        two = describe_configs(client, 4, resource(TOPIC, HERE), resource(TOPIC, THERE))
        assert [found.error_code for found in two] == [0, E.REQUEST_TIMED_OUT]
        found = sizes(client)
        assert found[f"{mesh['b']}:"] == (E.KAFKA_STORAGE_ERROR, {})
        assert found[folders["a"]][0] == 0
        assert time.monotonic() - began < 15
        fleet.start_broker("b")
        until_asked(client, THERE)
        assert own_configs(client, THERE) == {"segment.ms": "2"}
        assert partitions_of(client, THERE) == 3
