"""The facts of a group as bytes: those of earlier versions are readable for ever."""

from __future__ import annotations

import pytest

from quafka_broker.groups.consumer import facts
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.member import ClassicSide, ConsumerGroupMember, MemberProgress
from quafka_broker.groups.consumer.subscriptions import Subscriptions
from quafka_broker.groups.consumer.topics import TopicMetadata

T, TT = b"t" * 16, b"u" * 16
MEMBER = bytes.fromhex(
    "dc001001a169a172a163a168cdea6092a161a162a3742e2aa7756e69666f726d05040181c4107474"
    "7474747474747474747474747474820003010581c410747474747474747474747474747474748102"
    "0381c4107474747474747474747474747474747492000192cb40468000000000009192a572616e67"
    "65c4020001"
)
"""As the first version wrote it; so are the topics."""
TOPICS = bytes.fromhex(
    "93019294a174c41074747474747474747474747474747474039291a16191a16294a27474c4107575"
    "757575757575757575757575757501909292a3742e2a92a174a2747492a17890"
)


def _member() -> ConsumerGroupMember:
    return ConsumerGroupMember(
        "m", "i", "r", "c", "h", 60_000, frozenset(["a", "b"]), "t.*", "uniform", 5, 4,
        MemberProgress.UNREVOKED, {T: {0: 3, 1: 5}}, {T: {2: 3}}, {T: frozenset([0, 1])},
        ClassicSide(45.0, [("range", b"\x00\x01")]),
    )  # fmt: skip


def _shown(member: ConsumerGroupMember) -> tuple[object, ...]:
    return (
        *member.description, member.epoch, member.previous_epoch, member.progress, member.assigned,
        member.revoking, member.target, member.classic,
    )  # fmt: skip


def test_a_member_as_first_written() -> None:
    assert _shown(facts.to_member("m", MEMBER)) == _shown(_member())
    assert _shown(facts.to_member("m", facts.of_member(_member()))) == _shown(_member())


def test_topics_as_first_written_and_as_written_now() -> None:
    topics, matches, first = facts.to_topics(TOPICS)
    assert first == {}
    assert matches == {"t.*": frozenset(["t", "tt"]), "x": frozenset()}
    racks = (frozenset("a"), frozenset("b"))
    assert list(topics.values()) == [TopicMetadata(T, "t", 3, racks), TopicMetadata(TT, "tt", 1)]
    subscriptions = Subscriptions()
    for regex in matches:
        subscriptions.add(frozenset(), regex)
    subscriptions.restore(topics, matches)
    assert facts.to_topics(facts.of_topics(subscriptions)) == (topics, matches, {})
    subscriptions.remove(frozenset(), "t.*")
    subscriptions.first_partitions[T] = 3
    assert facts.to_topics(facts.of_topics(subscriptions)) == ({}, {"x": frozenset()}, {T: 3})


def test_a_group_goes_on_from_facts_as_first_written() -> None:
    group = ConsumerGroup("g")
    group.restore({"epoch": 5, "assignment_epoch": 5}, {"m": MEMBER, "": TOPICS}, 0.0)
    assert group.subscriptions.wanted() == {"a", "b", "t", "tt"}
    assert group.subscriptions.ids(frozenset(["a", "b"]), "t.*") == {T, TT}
    assert group.owners() == {("t", 0): "m", ("t", 1): "m"}


@pytest.mark.parametrize("fact", [b"", b"\x01", b"\x91\x02", MEMBER[:40], b"\x91\x01", b"\xc1"])
def test_what_is_no_fact_is_refused(fact: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        facts.to_topics(fact)
    with pytest.raises((ValueError, KeyError, TypeError)):
        facts.to_member("m", fact)
