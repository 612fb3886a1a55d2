"""Brokers and gateways on one object store: shards move, and clients notice nothing.

Latencies are those of a producer that writes to every shard all the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from shutil import copy, rmtree

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quafka_mesh_ops.shards import Hashed, shard_of
from tests.support.prometheus import get
from tests.support.steady_load import SteadyLoad
from tests.support.store_cluster import StoreCluster

TOPICS = [f"t{number}" for number in range(8)]  # they are on all four shards
PARTITIONS = 2
_UNTIL_SECONDS = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path_factory.mktemp("cluster"), brokers=("a",)) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap()})
        for made in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in TOPICS]).values():
            made.result(20)
        yield running


@contextmanager
def load(cluster: StoreCluster, prefix: str) -> Iterator[SteadyLoad]:
    """Writes while the block runs; then every record must be in its topic once."""
    running = SteadyLoad(cluster.bootstrap(), TOPICS, prefix)
    running.start()
    try:
        yield running
    finally:
        running.stop()
    assert running.differences(cluster.bootstrap(), PARTITIONS) == []
    assert running.written


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _UNTIL_SECONDS
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_a_second_broker_gets_half_of_the_shards_and_gives_them_back(
    cluster: StoreCluster,
) -> None:
    assert cluster.owners() == ["a"] * 4
    with load(cluster, "moves") as running:
        cluster.start_broker("b")
        until(lambda: sorted(cluster.owners()) == ["a", "a", "b", "b"], "shards move to b")
        cluster.drain("b")
        assert cluster.owners() == ["a"] * 4
    assert running.slowest < 12.0  # on a loaded machine; commonly half a second


@pytest.mark.long
def test_the_shards_of_a_killed_broker_are_taken_over(cluster: StoreCluster) -> None:
    cluster.start_broker("c")
    until(lambda: cluster.owners().count("c") == 2, "shards move to c")
    with load(cluster, "killed") as running:
        cluster.kill("c")
        until(lambda: cluster.owners() == ["a"] * 4, "a takes over")
    assert running.slowest < 15.0


@pytest.mark.long
def test_a_broker_that_wakes_after_its_shards_were_taken_serves_none(
    cluster: StoreCluster,
) -> None:
    cluster.start_broker("d")
    until(lambda: cluster.owners().count("d") == 2, "shards move to d")
    with load(cluster, "paused"):
        cluster.pause("d")
        until(lambda: cluster.owners() == ["a"] * 4, "a takes over")
        cluster.resume("d")
        until(lambda: cluster.owners().count("d") == 2, "d gets shards again")
    cluster.drain("d")


@pytest.mark.long
def test_groups_and_transactional_ids_of_one_org_are_at_all_shards(cluster: StoreCluster) -> None:
    """Each transaction commits offsets of groups at every shard, also while one is taken over."""
    bootstrap = cluster.bootstrap()
    groups = [name_at(Hashed.GROUP, shard) for shard in range(4)]
    consumers = {
        group: Consumer({"bootstrap.servers": bootstrap, "group.id": group}) for group in groups
    }
    producers = {
        name: Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        for name in (name_at(Hashed.TRANSACTION, shard) for shard in range(4))
    }
    cluster.start_broker("e")
    until(lambda: cluster.owners().count("e") == 2, "shards move to e")
    for producer in producers.values():
        producer.init_transactions(30)
    for offset in range(1, 7):
        for number, producer in enumerate(producers.values()):
            producer.begin_transaction()
            for group, consumer in consumers.items():
                offsets = [TopicPartition(TOPICS[number], 0, offset)]
                send(producer, offsets, consumer.consumer_group_metadata(), group)
            if offset == 3 and number == 1:
                cluster.kill("e")
            if offset % 2:
                retried(partial(producer.commit_transaction, 30))
            else:
                retried(partial(producer.abort_transaction, 30))
    asked = [TopicPartition(topic, 0) for topic in TOPICS[:4]]
    for consumer in consumers.values():
        assert [each.offset for each in consumer.committed(asked, 30)] == [5] * 4
        consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = {each.group_id for each in admin.list_consumer_groups().result(20).valid}
    assert listed >= set(groups)
    described = admin.describe_consumer_groups(groups)
    assert all(described[group].result(20).group_id == group for group in groups)
    for deleted in admin.delete_consumer_groups(groups).values():
        deleted.result(20)


def name_at(what: Hashed, shard: int) -> str:
    """A name that has this shard of four."""
    names = (f"spread-{number}" for number in count())
    return next(name for name in names if shard_of(what, 1, name, 4) == shard)


def send(producer: Producer, offsets: list[TopicPartition], metadata: object, group: str) -> None:
    """Commit offsets of a group with a transaction; a shard that moves is waited for."""
    retried(lambda: producer.send_offsets_to_transaction(offsets, metadata, 30), group)


def retried(call: Callable[[], None], what: str = "a transaction") -> None:
    """Call again while the client says so."""
    end = time.monotonic() + _UNTIL_SECONDS
    while True:
        try:
            return call()
        except KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > end:
                raise AssertionError(what) from e


@pytest.mark.long
def test_operators_see_shards_owners_and_moves(cluster: StoreCluster) -> None:
    address = cluster.page("a")
    node = cluster.brokers["a"].ready["node_id"][:16]
    owned = [f'quafka_shard_owner{{shard="{shard}",node="{node}"}} 1' for shard in range(4)]
    expected = [*owned, "quafka_shards_here 4", "quafka_shards_free 0"]

    def shown() -> bool:  # on a machine with other work a lease may lapse, and is taken again
        metrics = get(address, "/metrics")[2]
        return all(each in metrics for each in expected)

    until(shown, "all shards are here")
    page = get(address, "/statusz")[2]
    assert "Shards of the cluster; brokers:" in page
    assert node in page


@pytest.mark.long
def test_a_gateway_needs_only_one_address(tmp_path: Path) -> None:
    with StoreCluster(tmp_path, brokers=("a",), by_address=True, shards=3) as cluster:
        for number, name in enumerate(("a", "b")):
            producer = Producer({"bootstrap.servers": cluster.bootstrap()})
            for topic in TOPICS:
                producer.produce(topic, f"by {name}")
            assert producer.flush(30) == 0
            if number == 0:
                cluster.start_broker("b")
                until(lambda: "b" in cluster.owners(), "shards move to b")
                cluster.drain("a")  # the only one that the gateway was told of
                assert cluster.owners() == ["b"] * 3
        group = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap(),
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        group.subscribe(TOPICS)
        values: list[bytes | None] = []
        until(lambda: bool(_poll(group, values)) or len(values) == 16, "records of all shards")
        assert sorted(values, key=str) == [b"by a"] * 8 + [b"by b"] * 8
        group.close()


def _poll(consumer: Consumer, values: list[bytes | None]) -> bool:
    message = consumer.poll(0.2)
    if message is not None and message.error() is None:
        values.append(message.value())
    return False


@pytest.mark.long
def test_two_brokers_with_one_node_key_do_not_take_shards_from_each_other(tmp_path: Path) -> None:
    with StoreCluster(tmp_path, brokers=("a",), gateways=(), shards=2) as cluster:
        until(lambda: cluster.owners() == ["a"] * 2, "a has the shards")
        (tmp_path / "cache-b").mkdir()
        copy(tmp_path / "cache-a" / "node.key", tmp_path / "cache-b" / "node.key")
        second = cluster.start_broker("b")

        def warned() -> bool:
            return (
                f"the broker at {second.ready['mesh']} has the same node key"
                in (get(cluster.page("a"), "/readyz")[2])
            )

        def epochs() -> list[int]:
            return [each.epoch for each in cluster.state().manifests if each is not None]

        until(warned, "a reports the other broker")
        found = epochs()
        assert len(found) == 2
        assert max(found) < 5, "each took them once, but for pauses of a busy machine"
        cluster.kill("b")
        until(lambda: all(map(int.__gt__, epochs(), found)), "a takes over")


@pytest.mark.long
def test_the_loss_of_the_local_folder_costs_a_moment_and_no_record(tmp_path: Path) -> None:
    args = ("--wal-segment-bytes", str(1 << 20))
    with StoreCluster(tmp_path, brokers=("a",), shards=1, broker_args=args) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
        for made in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in TOPICS]).values():
            made.result(20)
        with load(cluster, "lost"):
            rmtree(tmp_path / "cache-a" / "wal")
            producer = Producer({"bootstrap.servers": cluster.bootstrap()})

            def taken_again() -> bool:
                producer.produce("large", bytes(500_000))
                producer.poll(0)
                return [each.epoch for each in cluster.state().manifests if each] == [2]

            until(taken_again, "a new segment is needed, and a begins on a new folder")
            assert producer.flush(30) == 0
        assert cluster.owners() == ["a"]


@pytest.mark.long
def test_an_emptied_store_is_no_new_cluster(tmp_path: Path) -> None:
    """As when the file system of a store is unmounted, or its prefix deleted."""
    with StoreCluster(tmp_path, brokers=("a",), gateways=(), shards=2) as cluster:
        store = tmp_path / "store"
        store.rename(tmp_path / "away")

        def refused() -> bool:
            return get(cluster.page("a"), "/readyz")[2].count("has lost the description") == 2

        until(refused, "no shard is made anew")
        assert list((store / "manifest").iterdir()) == []
        rmtree(store)
        (tmp_path / "away").rename(store)
        cluster.kill("a")
        for each in (store / "manifest").iterdir():
            each.unlink()
        with pytest.raises(AssertionError, match="has a chain, but its manifest is missing"):
            cluster.start_broker("b")
        cluster.brokers.clear()
