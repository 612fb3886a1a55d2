"""What members of the protocol type "consumer" say of themselves: the topics they subscribe to.

version   int16; later ones add fields behind these
topics    int32 count, each an int16 length and UTF-8
...
"""

from __future__ import annotations

import struct

from quafka_broker.groups.group import Group

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics; None where this is not such metadata."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        if not 0 <= count <= len(metadata) // 2:
            return None
        topics: set[str] = set()
        at = 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, at)
            name = metadata[at + 2 : at + 2 + length]
            if length < 0 or len(name) < length:
                return None
            topics.add(name.decode())
            at += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics


def subscribed_by(group: Group) -> set[str] | None:
    """The topics that a group's members are subscribed to; None where that cannot be told."""
    if group.members and group.protocol_type != CONSUMER:
        return None
    every: set[str] = set()
    for member in group.members.values():
        for metadata in member.protocols.values():
            topics = subscribed_topics(metadata)
            if topics is None:
                return None
            every |= topics
    return every
