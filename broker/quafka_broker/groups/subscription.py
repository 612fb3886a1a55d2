"""The topics that a group of protocol type "consumer" is subscribed to."""

from __future__ import annotations

from quafka_broker.groups.group import Group
from quafka_proto.consumer_protocol import CONSUMER, subscribed_topics
from quafka_proto.errors import Malformed


def subscribed_by(group: Group) -> set[str] | None:
    """The topics that a group's members are subscribed to; None where that is unknown."""
    if group.members and group.protocol_type != CONSUMER:
        return None
    every: set[str] = set()
    for member in group.members.values():
        for metadata in member.protocols.values():
            try:
                every |= subscribed_topics(metadata)
            except Malformed:
                return None
    return every
