"""The metadata and assignments of members of groups of protocol type "consumer".

version   int16; later versions add fields at the end
topics    int32 count; each has an int16 length and UTF-8 and, in an assignment, which the group's
          leader computes, an int32 count of int32 partitions
...
"""

from __future__ import annotations

import struct

from quafka_proto.errors import Malformed

CONSUMER = "consumer"
_HEAD_SIZE = 6


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


def assigned_partitions(assignment: bytes) -> dict[str, list[int]]:
    """The assigned partitions by topic. An empty assignment has none.

    Raises:
        Malformed: not such an assignment.
    """
    if not assignment:
        return {}
    found: dict[str, list[int]] = {}
    try:
        at = _HEAD_SIZE
        for _ in range(_count(assignment, 2)):
            name, at = _name(assignment, at)
            number = _count(assignment, at)
            partitions = struct.unpack_from(f">{number}i", assignment, at + 4)
            found.setdefault(name, []).extend(partitions)
            at += 4 + 4 * number
    except (struct.error, UnicodeDecodeError) as e:
        raise Malformed(f"not an assignment of partitions: {e}") from e
    return found


def _count(data: bytes, at: int) -> int:
    count: int = struct.unpack_from(">i", data, at)[0]
    if not 0 <= count <= len(data):
        raise Malformed(f"a list of {count} items")
    return count


def _name(data: bytes, at: int) -> tuple[str, int]:
    """A topic's name, and the position after it, which is always greater than `at`."""
    length: int = struct.unpack_from(">h", data, at)[0]
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise Malformed(f"a name of {length} bytes")
    return data[at + 2 : end].decode(), end
