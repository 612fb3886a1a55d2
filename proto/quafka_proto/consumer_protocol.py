"""What the members of a group of protocol type "consumer" are assigned, by its leader.

version   int16; later ones add fields behind these
topics    int32 count, each an int16 length and UTF-8, and an int32 count of int32 partitions
...
"""

from __future__ import annotations

import struct

from quafka_proto.errors import Malformed

_HEAD_SIZE = 6


def assigned_partitions(assignment: bytes) -> dict[str, list[int]]:
    """The partitions by topic. An empty assignment is one of nothing.

    Raises:
        Malformed: it is not such an assignment.
    """
    if not assignment:
        return {}
    found: dict[str, list[int]] = {}
    try:
        (count,) = struct.unpack_from(">i", assignment, 2)
        at = _HEAD_SIZE
        for _ in range(_checked(count, assignment)):
            (length,) = struct.unpack_from(">h", assignment, at)
            at += 2 + length
            name = assignment[at - length : at].decode()
            (number,) = struct.unpack_from(">i", assignment, at)
            wanted = _checked(number, assignment)
            partitions = struct.unpack_from(f">{wanted}i", assignment, at + 4)
            found.setdefault(name, []).extend(partitions)
            at += 4 + 4 * wanted
    except (struct.error, UnicodeDecodeError) as e:
        raise Malformed(f"not an assignment of partitions: {e}") from e
    return found


def _checked(count: int, data: bytes) -> int:
    if not 0 <= count <= len(data):
        raise Malformed(f"not an assignment of partitions: {count} items")
    return count
