"""The metadata and assignments of members of groups of protocol type "consumer".

version   int16; later versions add fields at the end
topics    int32 count; each has an int16 length and UTF-8 and, in an assignment, which the group's
          leader computes, an int32 count of int32 partitions
...
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from quafka_proto.errors import Malformed

CONSUMER = "consumer"
LAST_VERSION = 3
_HEAD_SIZE = 6
_GENERATION = struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> set[str]:
    """The topics that a member is subscribed to.

    Raises:
        Malformed: not such metadata.
    """
    found: set[str] = set()
    try:
        at = _HEAD_SIZE
        for _ in range(_count(metadata, 2)):
            name, at = _name(metadata, at)
            found.add(name)
    except (struct.error, UnicodeDecodeError) as e:
        raise Malformed(f"not a subscription to topics: {e}") from e
    return found


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's metadata. `owned`: its partitions, by topic; version 1 and up.

    `rack`: from version 3 on.
    """

    version: int
    topics: set[str] = field(default_factory=set[str])
    owned: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    rack: str = ""


def subscription_of(metadata: bytes) -> Subscription:
    """Decode a member's metadata of any version; a later one than 3 is read as 3.

    Metadata of version 1 may end after the user data: earlier versions of kafka-go write it so.
    They give up all of their partitions before they join again.

    Raises:
        Malformed: not such metadata.
    """
    topics: set[str] = set()
    owned: dict[str, list[int]] = {}
    rack = ""
    try:
        if struct.unpack_from(">h", metadata)[0] < 0:
            raise Malformed("metadata of a negative version")
        version = version_of(metadata)
        at = _HEAD_SIZE
        for _ in range(_count(metadata, 2)):
            name, at = _name(metadata, at)
            topics.add(name)
        at = _after_user_data(metadata, at)
        if version >= 2 or (version == 1 and at < len(metadata)):
            owned, at = _partitions(metadata, at)
        if version >= 2:
            at += _GENERATION.size
        if version >= 3:
            rack = _nullable_name(metadata, at)
    except (struct.error, UnicodeDecodeError) as e:
        raise Malformed(f"not a subscription to topics: {e}") from e
    if at > len(metadata):
        raise Malformed("a subscription to topics is cut short")
    return Subscription(version, topics, owned, rack)


def version_of(metadata: bytes) -> int:
    """The version of a member's metadata that is known here; its assignment has this one, too.

    Also of metadata that only earlier versions of the broker have accepted.
    """
    return min(max(0, int.from_bytes(metadata[:2], signed=True)), LAST_VERSION)


def assignment_of(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """An assignment of partitions, by topic, without user data."""
    parts = [struct.pack(">hi", version, len(partitions))]
    for topic, numbers in partitions.items():
        name, its = topic.encode(), sorted(numbers)
        parts.append(struct.pack(f">h{len(name)}si{len(its)}i", len(name), name, len(its), *its))
    parts.append(struct.pack(">i", -1))
    return b"".join(parts)


def assigned_partitions(assignment: bytes) -> dict[str, list[int]]:
    """The assigned partitions by topic. An empty assignment has none.

    Raises:
        Malformed: not such an assignment.
    """
    if not assignment:
        return {}
    try:
        return _partitions(assignment, 2)[0]
    except (struct.error, UnicodeDecodeError) as e:
        raise Malformed(f"not an assignment of partitions: {e}") from e


def _partitions(data: bytes, at: int) -> tuple[dict[str, list[int]], int]:
    """Partitions by topic, and the position after them."""
    found: dict[str, list[int]] = {}
    topics = _count(data, at)
    at += 4
    for _ in range(topics):
        name, at = _name(data, at)
        number = _count(data, at)
        found.setdefault(name, []).extend(struct.unpack_from(f">{number}i", data, at + 4))
        at += 4 + 4 * number
    return found, at


def _after_user_data(data: bytes, at: int) -> int:
    """The position after nullable bytes."""
    length: int = struct.unpack_from(">i", data, at)[0]
    end = at + 4 + max(0, length)
    if end > len(data):
        raise Malformed(f"user data of {length} bytes")
    return end


def _nullable_name(data: bytes, at: int) -> str:
    length: int = struct.unpack_from(">h", data, at)[0]
    return "" if length < 0 else _name(data, at)[0]


def _count(data: bytes, at: int) -> int:
    count: int = struct.unpack_from(">i", data, at)[0]
    if not 0 <= count <= len(data):
        raise Malformed(f"a list of {count} items")
    return count


def _name(data: bytes, at: int) -> tuple[str, int]:
    """A topic's name, and the position after it, which is always above `at`."""
    length: int = struct.unpack_from(">h", data, at)[0]
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise Malformed(f"a name of {length} bytes")
    return data[at + 2 : end].decode(), end
