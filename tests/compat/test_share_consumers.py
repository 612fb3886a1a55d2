"""Share groups with real clients: Java's KafkaShareConsumer and librdkafka's ShareConsumer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tests.support.admin_calls import grow
from tests.support.cluster import Cluster
from tests.support.fetch_calls import put
from tests.support.group_members import SECONDS, fill, produce
from tests.support.java import JAVA_CLIENTS
from tests.support.java_member import Java, java_member
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

FAST = ("--group-share-heartbeat-interval-ms", "300", "--group-share-session-timeout-ms", "6000")
DELIVERIES = 5
"""The limit of a record's deliveries, by default."""


@pytest.fixture(scope="module")
def share_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with short locks, whose members of share groups send heartbeats often."""
    args = (
        *FAST,
        "--group-share-min-record-lock-duration-ms", "1000",
        "--group-share-min-session-timeout-ms", "6000",
        "--group-share-min-heartbeat-interval-ms", "300",
    )  # fmt: skip
    with Cluster(tmp_path_factory.mktemp("shares"), broker_args=args) as running:
        yield running


class Member(Protocol):
    """A client that acknowledges by itself what it was told to."""

    def poll(self) -> list[tuple[str, int]]:
        """Values, and how often each has been delivered, or 0."""
        ...

    def acknowledge(self, kind: str, values: list[str]) -> None: ...

    def commit(self) -> list[str]:
        """The errors."""
        ...


class Librdkafka:
    """librdkafka's share consumer."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self._consumer = consumer
        self._polled: dict[str, Message] = {}

    def poll(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for message in self._consumer.poll(0.2):
            assert message.error() is None, message.error()
            value = (message.value() or b"").decode()
            self._polled[value] = message
            found.append((value, 0))
        return found

    def acknowledge(self, kind: str, values: list[str]) -> None:
        for value in values:
            self._consumer.acknowledge(self._polled[value], AcknowledgeType[kind])

    def commit(self) -> list[str]:
        return [str(error) for error in self._consumer.commit_sync(20.0).values() if error]


class ByJava:
    """Kafka's own share consumer."""

    def __init__(self, java: Java) -> None:
        self._java = java

    def poll(self) -> list[tuple[str, int]]:
        pairs = (line.split() for line in self._java.ask("poll"))
        return [(value, int(times)) for value, times in pairs]

    def acknowledge(self, kind: str, values: list[str]) -> None:
        if values:
            self._java.ask(" ".join((kind, *values)))

    def commit(self) -> list[str]:
        return self._java.ask("commit")


@pytest.fixture(params=["librdkafka", pytest.param("java", marks=JAVA_CLIENTS)])
def make(
    request: pytest.FixtureRequest, share_cluster: Cluster
) -> Iterator[Callable[[str], Member]]:
    """Makes members of a share group that reads the topic of its name from the beginning."""
    made: list[ShareConsumer] = []
    running: list[object] = []

    def librdkafka(group: str) -> Member:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": share_cluster.bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
            }
        )
        consumer.subscribe([group])
        made.append(consumer)
        return Librdkafka(consumer)

    def java(group: str) -> Member:
        process = java_member(share_cluster, group, group, program="ShareMember")
        running.append(process)
        return ByJava(process.__enter__())

    yield librdkafka if request.param == "librdkafka" else java
    for consumer in made:
        consumer.close()
    for process in running:
        process.__exit__(None, None, None)  # type: ignore[attr-defined]


def configure(cluster: Cluster, group: str, **configs: str) -> None:
    """Set a group's configs; "_" stands for a dot."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in {"share_auto_offset_reset": "earliest", **configs}.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)


@dataclass
class Seen:
    """What members were given, and what was acknowledged for good."""

    deliveries: Counter[str] = field(default_factory=Counter[str])
    settled: set[str] = field(default_factory=set[str])

    def step(self, member: Member, kind_of: Callable[[str], str]) -> None:
        """Poll once, acknowledge as told, and commit."""
        polled = [value for value, _ in member.poll()]
        again = self.settled.intersection(polled)
        assert not again, f"delivered again: {again}"
        self.deliveries.update(polled)
        by_kind: dict[str, list[str]] = {}
        for value in polled:
            by_kind.setdefault(kind_of(value), []).append(value)
        for kind, values in by_kind.items():
            member.acknowledge(kind, values)
        if polled and not member.commit():
            self.settled.update(*(by_kind.get(kind, ()) for kind in ("ACCEPT", "REJECT")))


def until(condition: Callable[[], bool], *steps: Callable[[], None]) -> None:
    give_up = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < give_up
        for step in steps:
            step()


def test_accepted_rejected_and_released(
    share_cluster: Cluster, make: Callable[[str], Member], request: pytest.FixtureRequest
) -> None:
    """Poison records end after the limit of deliveries; nothing else comes twice."""
    group = f"kinds-{request.node.callspec.id}"
    values = {value.decode() for value in fill(share_cluster, group)}
    configure(share_cluster, group)
    kinds = {"3": "RELEASE", "4": "REJECT"}
    poison = {value for value in values if value[-1] == "3"}
    seen, member = Seen(), make(group)
    until(
        lambda: (
            all(seen.deliveries[value] >= DELIVERIES for value in poison)
            and values - poison <= seen.settled
        ),
        lambda: seen.step(member, lambda value: kinds.get(value[-1], "ACCEPT")),
    )
    for _ in range(3):  # nothing comes any more
        seen.step(member, lambda _: "ACCEPT")
    assert seen.deliveries == {v: DELIVERIES if v in poison else 1 for v in values}


def test_records_of_an_added_partition_are_delivered(
    share_cluster: Cluster, make: Callable[[str], Member], request: pytest.FixtureRequest
) -> None:
    """To a group with the default reset, whose member polls throughout."""
    group = f"grows-{request.node.callspec.id}"
    with RawClient(share_cluster.address) as client:
        create_topic(client, group, 1)
        seen, member = Seen(), make(group)

        def step() -> None:
            put(client, group, b"early")
            seen.step(member, lambda _: "ACCEPT")
            seen.settled.discard("early")

        until(lambda: bool(seen.deliveries), step)  # then the group has begun
        assert grow(client, group, 2) == 0
        values = {f"{number}" for number in range(100)}
        put(client, group, *[value.encode() for value in values], partition=1)
    until(lambda: values <= seen.settled, lambda: seen.step(member, lambda _: "ACCEPT"))


def test_a_lock_that_ends_gives_the_record_to_another_member(
    share_cluster: Cluster, make: Callable[[str], Member], request: pytest.FixtureRequest
) -> None:
    group = f"locks-{request.node.callspec.id}"
    with RawClient(share_cluster.address) as client:
        create_topic(client, group, 1)  # both members have its partition
    values = {value.decode() for value in produce(share_cluster, group, range(40), 1)}
    configure(share_cluster, group, share_record_lock_duration_ms="1000")
    idle, held = make(group), list[str]()
    until(lambda: len(held) == len(values), lambda: held.extend(v for v, _ in idle.poll()))
    seen, busy = Seen(), make(group)
    until(lambda: seen.settled == values, lambda: seen.step(busy, lambda _: "ACCEPT"))
    idle.acknowledge("ACCEPT", held)
    idle.commit()  # too late: all of them have been dealt with
    # Java's client may have fetched them again before the other member did, and polls that now.
    idle.acknowledge("ACCEPT", [value for value, _ in idle.poll()])
    idle.commit()
    assert not idle.poll()
    assert not busy.poll()
    assert seen.deliveries == dict.fromkeys(values, 1)


@pytest.mark.parametrize("kill", ["broker", "gateway"])
def test_what_was_acknowledged_is_not_delivered_after_a_kill(
    share_cluster: Cluster,
    make: Callable[[str], Member],
    request: pytest.FixtureRequest,
    kill: str,
) -> None:
    group = f"kill-{request.node.callspec.id}"
    values = {value.decode() for value in fill(share_cluster, group, 200)}
    # What was on its way through the gateway stays locked.
    configure(share_cluster, group, share_record_lock_duration_ms="2000")
    seen, members = Seen(), [make(group), make(group)]

    def step() -> None:
        for member in members:
            try:
                seen.step(member, lambda _: "ACCEPT")
            except KafkaException as e:  # an acknowledgement without an answer
                if not e.args[0].retriable():
                    raise

    until(lambda: len(seen.settled) > 50, step)
    if kill == "broker":
        share_cluster.broker.kill()
        share_cluster.start_broker()
    else:
        share_cluster.gateway.kill()
        share_cluster.start_gateway()
    values |= {v.decode() for v in produce(share_cluster, group, range(200, 400))}
    until(lambda: seen.deliveries.keys() == values, step)
