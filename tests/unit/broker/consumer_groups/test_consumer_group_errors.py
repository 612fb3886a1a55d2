"""Every error of a heartbeat, with Kafka's code and message; and of commits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quafka_broker.groups.consumer.beat import LEAVE, LEAVE_FOR_NOW, MemberHeartbeat
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_proto.errors import ErrorCode as E
from tests.unit.broker.consumer_groups.clients import (
    Client,
    assigned,
    joining,
    known,
    settle,
    topic,
)

T = topic("t", 4)
JOINS = joining("m", "t")


@pytest.mark.parametrize(
    ("beat", "error", "message"),
    [
        (replace(JOINS, member_id=" "), E.INVALID_REQUEST, "MemberId can't be empty."),
        (replace(JOINS, instance_id=" "), E.INVALID_REQUEST, "InstanceId can't be empty."),
        (replace(JOINS, rack_id=""), E.INVALID_REQUEST, "RackId can't be empty."),
        (
            replace(JOINS, rebalance_timeout_ms=-1),
            E.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            replace(JOINS, owned=None),
            E.INVALID_REQUEST,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            replace(JOINS, owned={T.id: [1]}),
            E.INVALID_REQUEST,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            replace(JOINS, topic_names=None),
            E.INVALID_REQUEST,
            (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            ),
        ),
        (
            replace(JOINS, topic_names=("t",) * 10_001),
            E.INVALID_REQUEST,
            "SubscribedTopicNames has more than 10000 names.",
        ),
        (MemberHeartbeat("m", LEAVE_FOR_NOW), E.INVALID_REQUEST, "InstanceId can't be null."),
        (MemberHeartbeat("m", -3), E.INVALID_REQUEST, "MemberEpoch is invalid."),
        (
            replace(JOINS, assignor="sticky"),
            E.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
        (
            replace(JOINS, topic_regex="(a"),
            E.INVALID_REGULAR_EXPRESSION,
            (
                "SubscribedTopicRegex `(a` is not a valid regular expression: "
                "a parenthesis is not closed."
            ),
        ),
        (MemberHeartbeat("m", 5), E.UNKNOWN_MEMBER_ID, "Member m is not a member of group g."),
        (MemberHeartbeat("m", LEAVE), E.UNKNOWN_MEMBER_ID, "Member m is not a member of group g."),
        (MemberHeartbeat("m", 5, "i"), E.UNKNOWN_MEMBER_ID, "Instance id i is unknown."),
        (MemberHeartbeat("m", LEAVE, "i"), E.UNKNOWN_MEMBER_ID, "Instance id i is unknown."),
    ],
)
def test_a_refused_heartbeat_changes_nothing(beat: MemberHeartbeat, error: E, message: str) -> None:
    group = ConsumerGroup("g")
    answer = group.heartbeat(beat, 0.0, known(T))
    assert (answer.error, answer.message) == (error, message)
    assert not group.has_changes
    assert not group.members


def test_epochs_that_are_not_the_members() -> None:
    group = ConsumerGroup("g")
    client, other = Client(group, "m", ("t",)), Client(group, "n", ("t",))
    client.join(0.0, T)
    other.join()
    settle(client, other)
    before = dict(group.members["m"].assigned)
    answer = group.heartbeat(MemberHeartbeat("m", 9), 0.0)
    assert answer.error is E.FENCED_MEMBER_EPOCH
    assert answer.message == (
        "The consumer group member has a greater member epoch (9) than the one known by the group "
        "coordinator (3). The member must abandon all its partitions and rejoin."
    )
    for beat in (
        MemberHeartbeat("m", 1, owned={}),
        MemberHeartbeat("m", 2),
        MemberHeartbeat("m", 2, owned={T.id: [0, 1, 2, 3]}),
    ):
        answer = group.heartbeat(beat, 0.0)
        assert answer.error is E.FENCED_MEMBER_EPOCH
        assert answer.message is not None
        assert answer.message.startswith("The consumer group member has a smaller member epoch (")
    lost = group.heartbeat(
        MemberHeartbeat("m", 2, owned=client.owned), 0.0
    )  # it missed the last answer
    assert (lost.error, lost.member_epoch) == (E.NONE, 3)
    assert assigned(lost) == {each: sorted(held) for each, held in client.owned.items()}
    assert group.members["m"].assigned == before
    again = client.join()
    assert (again.error, again.member_epoch, client.count) == (E.NONE, 3, 2)


def test_a_lost_answer_is_no_sign_that_partitions_were_given_up() -> None:
    group = ConsumerGroup("g")
    client = Client(group, "m", ("t",))
    client.join(0.0, T)
    group.learn(known(topic("t", 5)))
    group.heartbeat(MemberHeartbeat("m", 2, owned=client.owned), 0.0)  # epoch 3; the answer is lost
    Client(group, "n", ("t",)).join()
    group.heartbeat(MemberHeartbeat("m", 2, owned={}), 0.0)
    assert group.members["m"].revoking


def test_several_lost_answers_fence_nobody() -> None:
    group = ConsumerGroup("g")
    client = Client(group, "m", ("t",))
    client.join(0.0, T)
    for partitions in (5, 6, 7):
        group.learn(known(topic("t", partitions)))
        group.heartbeat(MemberHeartbeat("m", client.epoch, owned=client.owned), 0.0)
    assert (client.epoch, group.members["m"].epoch) == (2, 5)
    client.beat()
    assert (client.epoch, client.count) == (5, 7)


def test_a_full_group_takes_back_a_static_member() -> None:
    group = ConsumerGroup("g", ConsumerGroupSettings(max_size=1))
    one = Client(group, "1", ("t",), "i")
    one.join(0.0, T)
    answer = Client(group, "2", ("t",)).join()
    assert (answer.error, answer.message) == (
        E.GROUP_MAX_SIZE_REACHED,
        "The consumer group has reached its maximum capacity of 1 members.",
    )
    group.heartbeat(MemberHeartbeat("1", LEAVE_FOR_NOW, "i"), 0.0)
    assert Client(group, "2", ("t",), "i").join().error is E.NONE


def test_a_static_member_keeps_its_partitions_for_its_successor() -> None:
    group = ConsumerGroup("g")
    one, other = Client(group, "1", ("t",), "i"), Client(group, "o", ("t",))
    one.join(0.0, T)
    other.join()
    settle(one, other)
    epoch = group.epoch
    answer = Client(group, "2", ("t",), "i").join()
    assert (answer.error, answer.message) == (
        E.UNRELEASED_INSTANCE_ID,
        (
            "Static member 2 with instance id i cannot join the group because the instance id is "
            "owned by 1 member."
        ),
    )
    fenced = "Static member 2 with instance id i was fenced by member 1."
    for beat in (
        MemberHeartbeat("2", 3, "i"),
        MemberHeartbeat("2", LEAVE, "i"),
        MemberHeartbeat("2", LEAVE_FOR_NOW, "i"),
    ):
        answer = group.heartbeat(beat, 0.0)
        assert (answer.error, answer.message) == (E.FENCED_INSTANCE_ID, fenced)
    left = group.heartbeat(MemberHeartbeat("1", LEAVE_FOR_NOW, "i"), 0.0)
    assert (left.error, left.member_epoch) == (E.NONE, LEAVE_FOR_NOW)
    assert group.heartbeat(MemberHeartbeat("1", 3, "i"), 0.0).error is E.FENCED_MEMBER_EPOCH
    other.beat()
    assert other.count == 2
    successor = Client(group, "2", ("t",), "i")
    group.take_change()
    successor.join()
    assert successor.owned == one.owned
    change = group.take_change()
    assert (list(change.members), change.gone) == (["2"], ["1"])
    assert group.epoch == epoch
    assert group.state == "Stable"


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    group = ConsumerGroup("g")
    one, other = Client(group, "1", ("t",), "i"), Client(group, "o", ("t",))
    one.join(0.0, T)
    other.join()
    settle(one, other)
    group.heartbeat(MemberHeartbeat("1", LEAVE_FOR_NOW, "i"), 0.0)
    other.beat(40.0)
    group.tick(45.0)
    other.beat(45.0)
    assert other.count == 4


def test_commits_need_the_epoch_of_the_member_or_of_the_partition() -> None:
    group = ConsumerGroup("g")
    assert group.may_commit(-1, "") is E.NONE
    client = Client(group, "m", ("t",))
    client.join(0.0, T)
    group.learn(known(topic("t", 5)))
    client.beat()
    assert client.epoch == 3
    assert group.may_commit(-1, "") is E.UNKNOWN_MEMBER_ID
    assert group.may_commit(3, "other") is E.UNKNOWN_MEMBER_ID
    assert group.may_commit(3, "m") is E.NONE
    assert group.may_commit(2, "m") is E.STALE_MEMBER_EPOCH
    assert group.may_commit(2, "m", {T.id: [0, 3]}) is E.NONE
    assert group.may_commit(2, "m", {T.id: [0, 4]}) is E.STALE_MEMBER_EPOCH
    assert group.may_commit(4, "m", {T.id: [0]}) is E.STALE_MEMBER_EPOCH
    assert group.may_fetch_offsets(-1, None) is E.NONE
    assert group.may_fetch_offsets(3, "m") is E.NONE
    assert group.may_fetch_offsets(2, "m") is E.STALE_MEMBER_EPOCH
    assert group.may_fetch_offsets(3, "other") is E.UNKNOWN_MEMBER_ID


def test_a_pattern_follows_the_topics_that_match_it() -> None:
    group = ConsumerGroup("g")
    beat = replace(joining("m"), topic_names=None, topic_regex="t.*")
    assert not group.knows("t.*")
    answer = group.heartbeat(replace(beat, regex_topics=frozenset("t")), 0.0, known(T))
    assert assigned(answer) == {T.id: [0, 1, 2, 3]}
    assert group.knows("t.*")
    assert group.subscriptions.regexes == ["t.*"]
    more = topic("tt", 2)
    group.resolve("t.*", frozenset(["t", "tt"]))
    group.learn(known(T, more))
    answer = group.heartbeat(MemberHeartbeat("m", answer.member_epoch), 0.0)
    assert assigned(answer) == {T.id: [0, 1, 2, 3], more.id: [0, 1]}
    assert group.subscriptions.wanted() == {"t", "tt"}
    group.heartbeat(MemberHeartbeat("m", LEAVE), 0.0)
    assert not group.subscriptions.topics
    assert not group.subscriptions.matches


def test_a_topic_that_the_caller_does_not_mention_is_unchanged() -> None:
    group = ConsumerGroup("g")
    client = Client(group, "m", ("t", "u"))
    client.join(0.0, T, topic("u", 1))
    epoch = group.epoch
    group.learn({})
    group.learn(known(T))
    group.learn({"other": topic("other", 3), "t": T})
    assert group.epoch == epoch
    group.learn({"u": None})
    assert group.epoch == epoch + 1
    client.beat()
    assert client.count == 4
    group.learn(known(topic("t", 4, generation=1)))  # deleted and created again
    settle(client)
    assert set(client.owned) == {topic("t", 4, generation=1).id}
