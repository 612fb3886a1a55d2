"""The facts of a group as bytes: one for each member, one for its topics. Pure.

A fact is a msgpack list whose first item is its version. Items are only ever appended; a reader
takes the default of those that are missing.

    member: [1, instance id, rack, client id, client host, rebalance timeout ms, [name, …], regex,
        assignor, epoch, previous epoch, progress, assigned, revoking, target,
        null | [session in seconds, [[protocol, metadata], …]]]
    assigned, revoking: {topic id: {partition: epoch}}
    target: {topic id: [partition, …]}
    topics: [1, [[name, id, partitions, [[rack, …], …]], …], [[regex, [name, …]], …],
        [name, …], [[regex, bitmap], …], {topic id: partitions}]

At first, the names that each pattern matches were separate lists. Since hundreds of patterns may
match thousands of names, they are now Roaring bitmaps (RoaringFormatSpec) over the list of names,
in which "" is a free place.

The last item, of share groups, has the partitions that a topic had when the group learnt it.

The group's own fact is {"epoch": …, "assignment_epoch": …}.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import msgpack as untyped_msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
from pyroaring import BitMap

from quafka_broker.groups.consumer.member import ClassicSide, ConsumerGroupMember, MemberProgress
from quafka_broker.groups.consumer.subscriptions import Subscriptions
from quafka_broker.groups.consumer.topics import Held, TopicMetadata, packer

msgpack: Any = untyped_msgpack

TOPICS = ""
"""The id of the topics' fact among the members' facts; no member has it."""
_VERSION = 1
_MEMBER_ITEMS = 16
_ID_BYTES = 16


def of_member(member: ConsumerGroupMember) -> bytes:
    """A member's fact."""
    classic = member.classic
    packed: bytes = packer.pack(
        [
            _VERSION,
            member.instance_id,
            member.rack,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            list(member.names),
            member.regex,
            member.assignor,
            member.epoch,
            member.previous_epoch,
            int(member.progress),
            member.assigned,
            member.revoking,
            {topic_id: list(numbers) for topic_id, numbers in member.target.items()},
            None if classic is None else [classic.session, classic.protocols],
        ]
    )
    return packed


def to_member(member_id: str, fact: bytes) -> ConsumerGroupMember:
    """The member of a fact.

    Raises:
        ValueError, KeyError, TypeError: this version does not know the fact.
    """
    items = _unpacked(fact)
    if len(items) < _MEMBER_ITEMS:
        raise ValueError("the fact of a member of a consumer group is too short")
    classic = items[15]
    return ConsumerGroupMember(
        member_id,
        instance_id=_text(items[1]),
        rack=_text(items[2]),
        client_id=_text(items[3]),
        client_host=_text(items[4]),
        rebalance_timeout_ms=_whole(items[5]),
        names=frozenset(map(_text, items[6])),
        regex=_text(items[7]),
        assignor=_text(items[8]),
        epoch=_whole(items[9]),
        previous_epoch=_whole(items[10]),
        progress=MemberProgress(items[11]),
        assigned=_held(items[12]),
        revoking=_held(items[13]),
        target={
            _id(topic_id): frozenset(map(_whole, numbers))
            for topic_id, numbers in _map(items[14]).items()
        },
        classic=None if classic is None else _classic(*classic),
    )


def _classic(session: object, protocols: Iterable[tuple[object, object]]) -> ClassicSide:
    if not isinstance(session, int | float):
        raise TypeError("a session timeout is a number")
    return ClassicSide(session, [(_text(name), _bytes(data)) for name, data in protocols])


def _held(found: object) -> Held:
    return {
        _id(topic_id): {_whole(number): _whole(at) for number, at in _map(numbers).items()}
        for topic_id, numbers in _map(found).items()
    }


def _map(found: object) -> dict[Any, Any]:
    if not isinstance(found, dict):
        raise TypeError("a map is expected")
    return cast("dict[Any, Any]", found)


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError("a text is expected")
    return found


def _bytes(found: object) -> bytes:
    if not isinstance(found, bytes):
        raise TypeError("bytes are expected")
    return found


def _id(found: object) -> bytes:
    if len(_bytes(found)) != _ID_BYTES:
        raise ValueError("a topic's id has 16 bytes")
    return cast(bytes, found)


def _whole(found: object) -> int:
    if not isinstance(found, int):
        raise TypeError("a whole number is expected")
    return found


def of_topics(subscriptions: Subscriptions) -> bytes:
    """The fact of a group's topics, and of the topics that match its patterns."""
    topics = subscriptions.topics.values()
    return b"".join(
        [
            packer.pack_array_header(6),
            packer.pack(_VERSION),
            packer.pack_array_header(len(topics)),
            *[topic.row for topic in topics],
            packer.pack([]),
            packer.pack(subscriptions.matched.listed),
            packer.pack(
                [[regex, found.serialize()] for regex, found in subscriptions.matches.items()]
            ),
            packer.pack(subscriptions.first_partitions),
        ]
    )


class TopicsFact(NamedTuple):
    """The fact of a group's topics: by name, the names by pattern; see `Subscriptions`."""

    by_name: dict[str, TopicMetadata]
    matches: dict[str, frozenset[str]]
    first_partitions: dict[bytes, int]


def to_topics(fact: bytes) -> TopicsFact:
    """The group's topics.

    Raises:
        ValueError, KeyError, TypeError: this version does not know the fact.
    """
    items = _unpacked(fact)
    missing: list[Any] = [[], [], {}]  # items that earlier versions did not write
    _, rows, listed, listed_names, bitmaps, first = (*items, *missing[len(items) - 3 :])[:6]
    names = list(map(_text, listed_names))
    matches = {_text(regex): frozenset(map(_text, found)) for regex, found in listed}
    for regex, bitmap in bitmaps:
        numbers = BitMap.deserialize(_bytes(bitmap))
        if numbers and numbers.max() >= len(names):
            raise ValueError("a pattern of a consumer group matches names that are not there")
        matches[_text(regex)] = frozenset([names[number] for number in numbers])
    topics = [
        TopicMetadata(
            _id(topic_id), _text(name), _whole(partitions),
            tuple(frozenset(map(_text, each)) for each in racks),
        )
        for name, topic_id, partitions, racks in rows
    ]  # fmt: skip
    return TopicsFact(
        {topic.name: topic for topic in topics}, matches,
        {_id(topic_id): _whole(partitions) for topic_id, partitions in _map(first).items()},
    )  # fmt: skip


def _unpacked(fact: bytes) -> list[Any]:
    found: object = msgpack.unpackb(fact, strict_map_key=False)
    items = cast("list[Any]", found) if isinstance(found, list) else []
    if not items or items[0] != _VERSION:
        raise ValueError("a fact of a consumer group has a version that is unknown here")
    return items
