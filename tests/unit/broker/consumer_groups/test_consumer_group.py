"""A consumer group: members join, move, leave; what is stored is enough to go on."""

from __future__ import annotations

import pytest

from quafka_broker.groups.consumer.beat import MemberHeartbeat
from quafka_broker.groups.consumer.facts import TOPICS
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_loop.slices import at_once
from quafka_proto.errors import ErrorCode
from tests.unit.broker.consumer_groups.clients import (
    Client,
    assigned,
    joining,
    known,
    settle,
    topic,
)

T = topic("t", 6)


def restored(group: ConsumerGroup, stored: dict[str, bytes], now: float = 0.0) -> ConsumerGroup:
    """The group after a restart."""
    again = ConsumerGroup(group.name)
    again.restore({"epoch": group.epoch, "assignment_epoch": group.assignment_epoch}, stored, now)
    return again


def test_a_first_member_gets_everything_with_its_first_answer() -> None:
    group = ConsumerGroup("g")
    assert group.state == "Empty"
    answer = group.heartbeat(joining("m", "t"), 0.0, known(T))
    assert answer.error is ErrorCode.NONE
    assert (answer.member_id, answer.member_epoch) == ("m", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert assigned(answer) == {T.id: [0, 1, 2, 3, 4, 5]}
    assert group.state == "Stable"
    assert group.owners() == {("t", number): "m" for number in range(6)}
    assert group.subscriptions.wanted() == {"t"}


def test_a_partition_changes_hands_only_after_its_member_gave_it_up() -> None:
    group = ConsumerGroup("g")
    one, two = Client(group, "1", ("t",)), Client(group, "2", ("t",))
    one.join(0.0, T)
    two.join(0.0, T)
    assert (two.epoch, two.count, group.state) == (3, 0, "Reconciling")
    two.beat()
    assert two.count == 0
    one.beat()  # is asked to give partitions up
    assert (one.epoch, one.count) == (2, 3)
    two.beat()
    assert two.count == 0
    one.beat()  # says that it has
    assert one.epoch == 3
    two.beat()
    assert (two.count, group.state) == (3, "Stable")


@pytest.mark.parametrize("is_static", [False, True])
def test_the_targets_follow_the_assignor_that_most_members_prefer(is_static: bool) -> None:
    group, stored = ConsumerGroup("g"), dict[str, bytes]()
    topics = topic("a", 1), topic("b", 1)
    members = [
        Client(group, each, ("a", "b"), each if is_static else None, "uniform") for each in "123"
    ]
    for each in members:
        each.join(0.0, *topics)
    settle(*members)
    assert (group.assignor, sorted(each.count for each in members)) == ("uniform", [0, 1, 1])
    for number, each in enumerate(members):
        epoch = group.epoch
        each.assignor = "range"
        if is_static:
            group.heartbeat(MemberHeartbeat(each.id, -2, each.instance_id), 0.0)
            each.id += "'"
            each.join(0.0)
        else:
            each.beat()
        assert group.epoch == epoch + (number == 1), "two of three are most"
        stored |= group.take_change().members
        for gone in stored.keys() - {TOPICS, *group.members}:
            del stored[gone]
    settle(*members)
    assert (group.assignor, sorted(each.count for each in members)) == ("range", [0, 0, 2])
    stored |= group.take_change().members
    again = restored(group, stored)
    assert again.assignor == "range"
    for each in members[:2]:
        again.remove(each.id, 0.0)
    assert again.assignor == "range"
    again.remove(members[2].id, 0.0)
    assert again.assignor == "uniform"


def test_a_member_that_gives_nothing_up_delays_only_its_partitions_and_is_removed() -> None:
    group = ConsumerGroup("g")
    slow, quick, third = (Client(group, each, ("t",)) for each in ("slow", "quick", "third"))
    slow.join(0.0, T)
    quick.join(0.0)
    third.join(0.0)
    for _ in range(3):
        group.heartbeat(MemberHeartbeat("slow", slow.epoch, owned=slow.owned), 1.0)
        settle(quick, third, now=1.0)
    assert (slow.count, quick.count, third.count) == (6, 0, 0)
    group.learn(known(topic("t", 9)))
    settle(quick, third, now=1.0)
    assert (slow.count, quick.count, third.count) == (6, 1, 1)  # of what nobody had
    for now in range(10, 61, 10):
        group.heartbeat(MemberHeartbeat("slow", slow.epoch, owned=slow.owned), now)
        settle(quick, third, now=now)
    group.tick(60.9)
    assert "slow" in group.members
    group.tick(61.0)
    assert slow.beat(61.0).error is ErrorCode.UNKNOWN_MEMBER_ID
    settle(quick, third, now=61.0)
    assert sorted((quick.count, third.count)) == [4, 5]


def test_a_heartbeat_that_changes_nothing_stores_nothing() -> None:
    group = ConsumerGroup("g")
    client = Client(group, "m", ("t",))
    client.join(0.0, T)
    assert set(group.take_change().members) == {"m", TOPICS}
    assert not group.has_changes
    assert group.heartbeat(MemberHeartbeat("m", client.epoch), 44.0).assignment is None
    assert not group.has_changes
    group.tick(50.0)
    assert "m" in group.members
    group.tick(89.0)
    assert group.state == "Empty"
    assert group.take_change().gone == ["m"]


def test_a_step_stores_what_it_changes() -> None:
    group = ConsumerGroup("g")
    clients = [Client(group, str(number), ("t",)) for number in range(6)]
    for client in clients:
        client.join(0.0, T)
    settle(*clients)
    group.take_change()
    group.heartbeat(MemberHeartbeat("5", -1), 0.0)
    change = group.take_change()
    assert change.own == {"epoch": group.epoch, "assignment_epoch": group.epoch}
    assert change.gone == ["5"]
    assert len(change.members) == 1  # who is to have its partition


def test_a_restart_goes_on_where_the_group_was() -> None:
    group = ConsumerGroup("g")
    one, two = Client(group, "1", ("t",)), Client(group, "2", ("t",))
    stored: dict[str, bytes] = {}
    for client in (one, two):
        client.join(0.0, T)
        one.beat()
        stored |= group.take_change().members
    one.group = two.group = again = restored(group, stored)
    assert again.members["1"].revoking == group.members["1"].revoking
    assert settle(one, two) <= 4
    assert (one.count, two.count, again.state) == (3, 3, "Stable")


def test_a_change_that_the_log_refused_is_part_of_the_next_one() -> None:
    group = ConsumerGroup("g")
    group.heartbeat(joining("m", "t"), 0.0, known(T))
    lost = group.take_change()
    group.not_stored(lost)
    assert group.take_change() == lost


def test_a_large_group_goes_on_while_its_target_is_computed() -> None:
    group = ConsumerGroup("g", ConsumerGroupSettings(small=0))
    one, two = Client(group, "1", ("t",)), Client(group, "2", ("t",))
    one.join(0.0, T)
    assert (one.epoch, one.count, group.state) == (1, 0, "Assigning")
    computation = group.begin_target(0.0)
    assert computation is not None
    assert group.begin_target(0.0) is None
    copying = computation.steps()
    next(copying)
    two.join(0.0)
    at_once(copying)
    steps = group.install(computation, 0.0)
    next(steps)
    one.beat()  # between the steps of the installation
    first = group.take_change()
    assert set(first.members) >= {"1"}
    last = at_once(steps)
    assert "1" not in last.members
    assert last.own == {"epoch": 3, "assignment_epoch": 2}
    assert (one.epoch, one.count, two.count) == (2, 6, 0)
    assert group.state == "Assigning"
    assert group.target_due_at == 1.0
    assert group.begin_target(0.9) is None
    assert group.begin_target(1.0) is not None
