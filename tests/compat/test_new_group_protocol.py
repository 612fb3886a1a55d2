"""Groups of KIP-848 with real clients: librdkafka and Java, alone, together, and through kills."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.support.cluster import Cluster
from tests.support.group_members import (
    GROUPS,
    PARTITIONS,
    SECONDS,
    fill,
    member,
    owned,
    poll,
    produce,
    read,
    until,
)
from tests.support.java import JAVA_CLIENTS
from tests.support.java_member import java_member

FAST = (
    "--group-consumer-heartbeat-interval-ms", "300",
    "--group-consumer-session-timeout-ms", "6000", *GROUPS,
)  # fmt: skip
BY_CONSUMER = ("group.protocol=consumer", "auto.offset.reset=earliest")


@pytest.fixture(scope="module")
def new_group_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose members of groups send heartbeats often."""
    with Cluster(tmp_path_factory.mktemp("groups"), broker_args=FAST) as running:
        yield running


def consumer(
    cluster: Cluster, group: str, *topics: str, instance: str = "", **settings: object
) -> Consumer:
    """A consumer of the new protocol, subscribed to the topics."""
    config: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    if instance:
        config["group.instance.id"] = instance
    made = Consumer(config)
    if topics:
        made.subscribe(list(topics))
    return made


def described(cluster: Cluster, group: str) -> tuple[str, str, int]:
    """A group's type and state, and the number of its members, for an admin client."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(SECONDS)
    return found.type.name, found.state.name, len(found.members)


def test_librdkafka_reads_commits_and_goes_on(new_group_cluster: Cluster) -> None:
    cluster = new_group_cluster
    values = fill(cluster, "resume")
    first = consumer(cluster, "resume", "resume")
    assert sorted(read(first, 40)) == sorted(values)
    first.close()
    more = produce(cluster, "resume", range(40, 60))
    second = consumer(cluster, "resume", "resume")
    assert sorted(read(second, 20)) == sorted(more)
    assert described(cluster, "resume") == ("CONSUMER", "STABLE", 1)
    second.close()
    assert described(cluster, "resume") == ("CONSUMER", "EMPTY", 0)


@pytest.mark.long
def test_librdkafka_commits_without_a_subscription(new_group_cluster: Cluster) -> None:
    """Its member id is its own: no group knows it."""
    cluster = new_group_cluster
    fill(cluster, "assigned")
    reader = consumer(cluster, "assigned", enable_auto_commit=False)
    reader.assign([TopicPartition("assigned", 0, 0)])
    for offset in (1, 2, 3):
        place = TopicPartition("assigned", 0, offset)
        (done,) = reader.commit(offsets=[place], asynchronous=False)
        assert done.error is None
    reader.close()
    again = consumer(cluster, "assigned")
    assert [each.offset for each in again.committed([place], SECONDS)] == [3]
    again.close()


@pytest.mark.long
def test_members_share_and_take_over(new_group_cluster: Cluster) -> None:
    cluster = new_group_cluster
    fill(cluster, "shared")
    a = consumer(cluster, "shared", "shared")
    until(lambda: len(owned(a)) == PARTITIONS, a)
    b = consumer(cluster, "shared", "shared")
    until(lambda: len(owned(a)) == len(owned(b)) == 2, a, b)
    assert owned(a) | owned(b) == set(range(PARTITIONS))
    b.close()
    until(lambda: len(owned(a)) == PARTITIONS, a)
    a.close()


@pytest.mark.long
def test_a_topic_that_grows_and_one_that_comes(new_group_cluster: Cluster) -> None:
    cluster = new_group_cluster
    fill(cluster, "grows")
    a = consumer(cluster, "grows", "grows", "comes")
    until(lambda: len(owned(a)) == PARTITIONS, a)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    admin.create_partitions([NewPartitions("grows", PARTITIONS + 2)])["grows"].result(SECONDS)
    fill(cluster, "comes")
    until(lambda: len(a.assignment()) == 2 * PARTITIONS + 2, a)
    a.close()


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_between_the_protocols_online(
    new_group_cluster: Cluster, strategy: str
) -> None:
    cluster, group = new_group_cluster, f"moves-{strategy}"
    values = set(fill(cluster, group))
    settings = {"partition.assignment.strategy": strategy, "auto.commit.interval.ms": 100}
    old = member(cluster, group, group, settings)
    found = until(lambda: len(owned(old)) == PARTITIONS, old)
    new = consumer(cluster, group, group)
    found += until(lambda: len(owned(old)) == len(owned(new)) == 2, old, new)
    assert owned(old) | owned(new) == set(range(PARTITIONS))
    assert described(cluster, group) == ("CONSUMER", "STABLE", 2)
    old.close()
    found += until(lambda: len(owned(new)) == PARTITIONS, new)
    again = member(cluster, group, group, settings)
    found += until(lambda: len(owned(again)) == len(owned(new)) == 2, again, new)
    values |= set(produce(cluster, group, range(40, 80)))
    new.close()
    found += until(lambda: len(owned(again)) == PARTITIONS, again)
    assert described(cluster, group) == ("CLASSIC", "STABLE", 1)
    give_up = time.monotonic() + SECONDS
    while set(found) != values:
        assert time.monotonic() < give_up
        found += poll(again)
    again.close()


@pytest.mark.long
@pytest.mark.parametrize("kill", ["broker", "gateway"])
def test_members_keep_their_epochs_through_a_kill(new_group_cluster: Cluster, kill: str) -> None:
    cluster, group = new_group_cluster, f"kill-{kill}"
    values = set(fill(cluster, group, 200))
    a, b = consumer(cluster, group, group), consumer(cluster, group, group)
    found = until(lambda: len(owned(a)) == len(owned(b)) == 2, a, b)
    before = owned(a), owned(b)
    lost: list[object] = []

    def note(*_: object) -> None:
        lost.append(1)

    for each in (a, b):
        each.subscribe([group], on_revoke=note, on_lost=note)
    found += until(lambda: (owned(a), owned(b)) == before, a, b)
    lost.clear()
    if kill == "broker":
        cluster.broker.kill()
        cluster.start_broker()
    else:
        cluster.gateway.kill()
        cluster.start_gateway()
    values |= set(produce(cluster, group, range(200, 400)))
    give_up = time.monotonic() + SECONDS
    while set(found) != values:
        assert time.monotonic() < give_up
        found += poll(a) + poll(b)
    places = [TopicPartition(group, partition) for partition in range(PARTITIONS)]
    until(lambda: sum(each.offset for each in a.committed(places, timeout=20)) == 400, a, b)
    assert (owned(a), owned(b)) == before
    assert not lost
    a.close()
    b.close()


@pytest.mark.long
@JAVA_CLIENTS
def test_java_shares_with_librdkafka_and_follows_a_pattern(new_group_cluster: Cluster) -> None:
    cluster = new_group_cluster
    fill(cluster, "java-1")
    with java_member(cluster, "java", "/java-.*/", *BY_CONSUMER) as java:
        _until(lambda: len(java.poll()) >= 0 and len(java.owned()) == PARTITIONS)
        fill(cluster, "java-2")
        _until(lambda: len(java.poll()) >= 0 and len(java.owned()) == 2 * PARTITIONS)
        other = consumer(cluster, "java", "java-1", "java-2")

        def shared() -> bool:
            poll(other)
            java.poll()
            return len(java.owned()) == len(other.assignment()) == PARTITIONS

        _until(shared)
        kind, state, members = described(cluster, "java")
        assert (kind, state, members) == ("CONSUMER", "STABLE", 2)
        java.ask("close")
        until(lambda: len(other.assignment()) == 2 * PARTITIONS, other)
        other.close()


@pytest.mark.long
@JAVA_CLIENTS
def test_no_partition_has_two_owners_and_who_keeps_one_delays_that_one_alone(
    new_group_cluster: Cluster,
) -> None:
    """By what the listeners of Java's consumers are told, and when."""
    cluster, group = new_group_cluster, "owners"
    fill(cluster, group)
    told: dict[str, list[str]] = {"a": [], "b": []}
    with ExitStack() as stack:
        members = {
            name: stack.enter_context(java_member(cluster, group, group, *BY_CONSUMER))
            for name in told
        }

        def number_of(name: str) -> int:
            """How many partitions a member has after another poll."""
            members[name].poll()
            told[name] += members[name].ask("events")
            return len(members[name].owned())

        _until(lambda: number_of("a") == PARTITIONS)
        _until(lambda: number_of("a") == number_of("b") == 2)
        c, d = (consumer(cluster, group, group) for _ in range(2))
        # The first member does not poll, and gives up nothing; of what the second one has given up
        # there is a new owner.
        until(lambda: number_of("b") == 1 == len(owned(c)) + len(owned(d)), c, d)
        assert len(members["a"].owned()) == 2
        until(lambda: (number_of("a"), len(owned(c)), len(owned(d))) == (1, 1, 1), c, d)
        c.close()
        d.close()
        _until(lambda: number_of("a") == number_of("b") == 2)
    assert not [line for lines in told.values() for line in lines if " lost" in line]
    owners: dict[str, str] = {}
    for _, name, what, places in sorted(_events(told)):
        for place in places:
            if what == "revoked":
                assert owners.pop(place) == name
            else:
                assert place not in owners or name == owners[place], (place, name, owners)
                owners[place] = name


def _events(told: dict[str, list[str]]) -> Iterator[tuple[tuple[int, bool], str, str, list[str]]]:
    """What listeners were told, by time; at the same one, what was revoked comes first."""
    for name, lines in told.items():
        for line in lines:
            when, what, *places = line.split()
            yield (int(when), what == "assigned"), name, what, places


@pytest.mark.long
def test_a_static_member_keeps_its_partitions(new_group_cluster: Cluster) -> None:
    """Also the next one with its name, of either protocol; two at a time cannot be."""
    cluster, group = new_group_cluster, "static"
    fill(cluster, group)
    a = consumer(cluster, group, group, instance="a")
    b = consumer(cluster, group, group, instance="b")
    until(lambda: len(owned(a)) == len(owned(b)) == 2, a, b)
    its, others = owned(a), owned(b)
    second = consumer(cluster, group, group, instance="a")
    errors: list[str] = []
    until(lambda: errors or _error(second, errors), b)
    assert "UNRELEASED_INSTANCE_ID" in errors[0] or "instance" in errors[0].lower()
    second.close()
    a.close()
    again = consumer(cluster, group, group, instance="a")
    until(lambda: owned(again) == its, again, b)
    assert owned(b) == others
    again.close()
    settings = {"group.instance.id": "a", "partition.assignment.strategy": "range"}
    classic = member(cluster, group, group, settings)
    until(lambda: owned(classic) == its, classic, b)
    assert owned(b) == others
    classic.close()
    last = consumer(cluster, group, group, instance="a")
    until(lambda: owned(last) == its, last, b)
    last.close()
    b.close()


def _error(consumer: Consumer, errors: list[str]) -> bool:
    message = consumer.poll(0.1)
    if message is not None and (error := message.error()) is not None:
        errors.append(f"{error.name()} {error.str()}")
    return bool(errors)


def _until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < give_up
