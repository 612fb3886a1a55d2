"""Share groups: members, epochs, and partitions with several members."""

from __future__ import annotations

from collections.abc import Mapping

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.groups.consumer.assignors import SIMPLE
from quafka_broker.groups.consumer.beat import BeatAnswer, MemberHeartbeat
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_broker.groups.consumer.subscriptions import Subscriptions
from quafka_broker.groups.consumer.topics import TopicMetadata
from quafka_broker.groups.share.group import ShareGroup
from quafka_proto.errors import ErrorCode
from tests.support.suites import examples

SETTINGS = ConsumerGroupSettings(session_timeout=45.0, max_size=5, assignors=(SIMPLE,))
T = TopicMetadata(b"t" * 16, "t", 2)


class Log:
    """A group, and the facts that a log would have."""

    def __init__(self) -> None:
        self.group = ShareGroup("g", SETTINGS)
        self.own: dict[str, object] = {}
        self.members: dict[str, bytes] = {}

    def beat(
        self, member: str, epoch: int, *topics: str, now: float = 0.0, rack: str | None = None
    ) -> BeatAnswer:
        known: Mapping[str, TopicMetadata | None] = {"t": T} if "t" in topics else {}
        sent = MemberHeartbeat(member, epoch, rack_id=rack, topic_names=tuple(topics) or None)
        answer = self.group.heartbeat(sent, now, known)
        self.store()
        return answer

    def store(self) -> None:
        if not self.group.has_changes:
            return
        change = self.group.take_change()
        self.own = change.own or self.own
        self.members.update(change.members)
        for gone in change.gone:
            self.members.pop(gone, None)

    def restart(self, now: float = 0.0) -> None:
        self.group = ShareGroup("g", SETTINGS)
        self.group.restore(self.own, self.members, now)


def _held(answer: BeatAnswer) -> list[int]:
    assert answer.assignment is not None
    return sorted(answer.assignment.get(T.id, ()))


def test_members_share_partitions_and_need_not_give_any_up() -> None:
    log = Log()
    first = log.beat("a", 0, "t")
    assert (first.error, _held(first)) == (0, [0, 1])
    second = log.beat("b", 0, "t")
    assert len(_held(second)) == 1
    third = log.beat("c", 0, "t")
    assert len(_held(third)) == 1, "a partition has two members"
    assert log.group.state == "Stable"
    moved = log.beat("a", first.member_epoch)
    assert moved.member_epoch == log.group.epoch
    assert len(_held(moved)) == 1
    assert log.beat("a", moved.member_epoch).assignment is None, "nothing has changed"


def test_a_lost_answer_is_sent_again_and_old_epochs_are_fenced() -> None:
    log = Log()
    first = log.beat("a", 0, "t").member_epoch
    log.beat("b", 0, "t")
    second = log.beat("a", first)
    again = log.beat("a", first)
    assert (again.member_epoch, again.assignment) == (second.member_epoch, second.assignment)
    log.beat("c", 0, "t")
    log.beat("a", second.member_epoch)
    for epoch in (first, 1_000):
        assert log.beat("a", epoch).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert log.beat("z", 7).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.beat("z", -1).error == ErrorCode.UNKNOWN_MEMBER_ID


GROWN = TopicMetadata(T.id, "t", 5)


@pytest.mark.parametrize("empty", [False, True])
def test_a_group_notes_the_partitions_of_a_topic_when_it_learns_of_it(empty: bool) -> None:
    log = Log()
    assert log.group.first_partitions(T.id) == -1
    log.beat("a", 0, "t")
    if empty:
        log.beat("a", -1)
    for _ in range(2):
        assert log.group.first_partitions(T.id) == 2
        log.restart()
    log.group.learn({"t": GROWN})
    log.store()
    assert log.group.first_partitions(T.id) == 2
    if empty:
        log.beat("a", 0, "t")
    again = TopicMetadata(b"n" * 16, "t", 7)
    log.group.learn({"t": again})
    log.store()
    log.restart()
    assert log.group.first_partitions(again.id) == 7
    log.group.forget([T.id, b"?" * 16])
    log.store()
    log.restart()
    assert [log.group.first_partitions(each) for each in (T.id, again.id)] == [-1, 7]


def test_topics_in_facts_of_earlier_versions_are_known_with_their_partitions() -> None:
    log = Log()
    log.beat("a", 0, "t")
    items = msgpack.unpackb(log.members[""])
    log.members[""] = msgpack.packb(items[:-1])
    log.restart()
    assert log.group.first_partitions(T.id) == 2


def test_only_so_many_topics_without_a_subscriber_are_noted() -> None:
    subscriptions = Subscriptions()
    names = [f"{number:016}" for number in range(10)]
    topics = {each: TopicMetadata(each.encode(), each, 1) for each in names}
    subscriptions.add(frozenset(names), "")
    subscriptions.learn(topics)
    subscriptions.note_partitions(3)
    assert len(subscriptions.first_partitions) == 10
    subscriptions.remove(frozenset(names), "")
    subscriptions.add(frozenset(names[:2]), "")
    subscriptions.learn(topics)
    subscriptions.note_partitions(3)
    kept = [each.decode() for each in subscriptions.first_partitions]
    assert kept == [*names[:2], *names[7:]]
    before = subscriptions.cost
    subscriptions.first_partitions.clear()
    assert subscriptions.cost < before


def test_a_restart_disturbs_nobody() -> None:
    log = Log()
    log.beat("a", 0, "t")
    log.beat("b", 0, "t")
    epoch = log.group.members["a"].epoch
    log.restart()
    assert log.group.members.keys() == {"a", "b"}
    assert not log.beat("a", epoch).error
    before = {each.id: each.target for each in log.group.members.values()}
    log.restart()
    assert {each.id: each.target for each in log.group.members.values()} == before


def test_sessions_end_and_members_leave() -> None:
    log = Log()
    log.beat("a", 0, "t")
    log.beat("b", 0, "t", now=10.0)
    log.group.tick(45.0)
    assert log.group.members.keys() == {"b"}
    assert log.beat("b", -1, now=46.0).member_epoch == -1
    assert log.group.state == "Empty"


def test_topics_that_grow_and_go() -> None:
    log = Log()
    epoch = log.beat("a", 0, "t").member_epoch
    log.group.learn({"t": TopicMetadata(T.id, "t", 3)})
    log.group.tick(0.0)
    grown = log.beat("a", epoch)
    assert _held(grown) == [0, 1, 2]
    log.group.learn({"t": None})
    log.group.tick(0.0)
    assert log.beat("a", grown.member_epoch).assignment == {}


@pytest.mark.parametrize(
    ("beat", "message"),
    [
        (MemberHeartbeat("", 0, topic_names=("t",)), "MemberId"),
        (MemberHeartbeat(" ", 0, topic_names=("t",)), "MemberId"),
        (MemberHeartbeat("a", 0), "SubscribedTopicNames"),
        (MemberHeartbeat("a", 0, topic_names=()), "SubscribedTopicNames"),
        (MemberHeartbeat("a", -2), "MemberEpoch"),
        (MemberHeartbeat("a", 0, topic_names=("t",), rack_id=""), "RackId"),
        (MemberHeartbeat("a", 0, topic_names=("t",), rack_id=" "), "RackId"),
    ],
)
def test_requests_that_are_refused(beat: MemberHeartbeat, message: str) -> None:
    answer = Log().group.heartbeat(beat, 0.0)
    assert answer.error == ErrorCode.INVALID_REQUEST
    assert message in (answer.message or "")


def test_a_group_has_a_greatest_size() -> None:
    log = Log()
    for member in "abcde":
        assert not log.beat(member, 0, "t").error
    assert log.beat("f", 0, "t").error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not log.beat("a", 0, "t").error, "a member may join again"


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from("abcde")),
        st.tuples(st.just("beat"), st.sampled_from("abcde")),
        st.tuples(st.just("leave"), st.sampled_from("abcde")),
        st.tuples(st.just("restart"), st.just("")),
    ),
    max_size=40,
)


@given(_STEPS)
@examples(60)
def test_once_all_have_sent_a_heartbeat_every_partition_and_every_member_has_some(
    steps: list[tuple[str, str]],
) -> None:
    log = Log()
    epochs: dict[str, int] = {}
    for step, member in steps:
        if step == "restart" and log.own:
            log.restart()
        elif step == "join":
            epochs[member] = log.beat(member, 0, "t").member_epoch
        elif step == "beat" and member in epochs:
            answer = log.beat(member, epochs[member])
            assert answer.error == 0
            assert answer.member_epoch >= epochs[member], "epochs never go back"
            epochs[member] = answer.member_epoch
        elif step == "leave" and member in epochs:
            log.beat(member, -1)
            del epochs[member]
    for member, epoch in epochs.items():
        log.beat(member, epoch)
    members = log.group.members
    assert members.keys() == epochs.keys()
    held = [set(each.assigned.get(T.id, ())) for each in members.values()]
    assert all(held)
    assert not members or set().union(*held) == {0, 1}
