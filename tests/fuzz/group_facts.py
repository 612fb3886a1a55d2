"""What the journal of groups keeps of consumer and share groups, for the fuzzer."""

from __future__ import annotations

import struct

from quafka_broker.groups.consumer import facts
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.member import ClassicSide, ConsumerGroupMember, MemberProgress
from quafka_broker.groups.consumer.subscriptions import Subscriptions
from quafka_broker.groups.consumer.topics import TopicMetadata, packer
from quafka_broker.groups.event_codec import EventAssembler, encode
from quafka_broker.groups.table import Event
from quafka_broker.shares import events as share_events

_REFUSED = (ValueError, KeyError, TypeError, IndexError)
"""What a start reports as an event or a fact that it does not know."""
_T, _U = b"t" * 16, b"u" * 16
_SIZE = struct.Struct(">BH")
_MEMBER, _EVENT, _SHARES = range(3)


def group_facts(data: bytes) -> bool:
    """Facts of a member and of topics, or an event of a journal; the first byte says which."""
    kind = (data or b"\0")[0] % 3
    try:
        if kind == _EVENT:
            return EventAssembler().feed(0, data[1:]) is not None
        if kind == _SHARES:
            share_events.decode(data[1:])
            return True
        return _restored(data)
    except _REFUSED:
        return False


def _restored(data: bytes) -> bool:
    """A group of one member whose facts these are; what is taken over must do for a group."""
    if len(data) < _SIZE.size:
        return False
    _, size = _SIZE.unpack_from(data)
    at = _SIZE.size + size
    stored = {"m": data[_SIZE.size : at]}
    if data[at:]:
        stored[facts.TOPICS] = data[at:]
    group = ConsumerGroup("g")
    group.restore({"epoch": 5, "assignment_epoch": 5}, stored, 0.0)
    group.owners()
    again = ConsumerGroup("g")
    member = group.members["m"]
    packed = {"m": facts.of_member(member), facts.TOPICS: facts.of_topics(group.subscriptions)}
    again.restore({"epoch": 5, "assignment_epoch": 5}, packed, 0.0)
    assert again.members["m"].description == member.description
    assert again.owners() == group.owners()
    return True


def group_facts_seeds() -> list[bytes]:
    """One of each kind, as written now and at first."""
    member = ConsumerGroupMember(
        "m", "i", "r", "c", "h", 60_000, frozenset(["a", "b"]), "t.*", "uniform", 5, 4,
        MemberProgress.UNREVOKED, {_T: {0: 3, 1: 5}}, {_U: {2: 3}}, {_T: frozenset([0, 1])},
        ClassicSide(45.0, [("range", b"\x00\x01")]),
    )  # fmt: skip
    subscriptions = Subscriptions()
    subscriptions.add(member.names, member.regex)
    subscriptions.resolve("t.*", frozenset(["t", "tt"]))
    racks = (frozenset("a"), frozenset("b"))
    subscriptions.learn({"t": TopicMetadata(_T, "t", 2, racks), "a": TopicMetadata(_U, "a", 3)})
    fact, topics = facts.of_member(member), facts.of_topics(subscriptions)
    rows = [(topic.name, topic.id, topic.partitions, ()) for topic in subscriptions.topics.values()]
    first: bytes = packer.pack([1, rows, [["t.*", ["t"]]]])
    event: Event = {
        "event": "group_members", "org": 1, "group": "g", "kind": "consumer", "born_ms": 1,
        "own": {"epoch": 5, "assignment_epoch": 5, "since_ms": 3}, "members": [["m", fact]],
        "gone": ["n"],
    }  # fmt: skip
    shares = share_events.encode(share_events.Began(1, "g", _T, 0, 7, [(8, 9, 1, 2)]))
    head = _SIZE.pack(_MEMBER, len(fact))
    return [
        head + fact,
        head + fact + topics,
        head + fact + first,
        bytes([_EVENT]) + b"".join(encode(event)),
        bytes([_SHARES]) + shares,
    ]
