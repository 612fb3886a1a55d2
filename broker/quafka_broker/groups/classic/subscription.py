"""The subscription of a group of protocol type "consumer", and the partitions of its members."""

from __future__ import annotations

from collections.abc import Mapping

from quafka_broker.groups.classic.members import ClassicMember
from quafka_broker.groups.group import Place
from quafka_proto.consumer_protocol import CONSUMER, assigned_partitions, subscribed_topics
from quafka_proto.errors import Malformed


def subscribed_by(members: Mapping[str, ClassicMember], protocol_type: str) -> set[str] | None:
    """The topics that members are subscribed to; None where that is unknown."""
    if members and protocol_type != CONSUMER:
        return None
    every: set[str] = set()
    for member in members.values():
        for metadata in member.protocols.values():
            try:
                every |= subscribed_topics(metadata)
            except Malformed:
                return None
    return every


def owned_by(members: Mapping[str, ClassicMember]) -> dict[Place, str]:
    """The id of the member that each partition is assigned to."""
    owners: dict[Place, str] = {}
    for member in members.values():
        try:
            assigned = assigned_partitions(member.assignment)
        except Malformed:
            continue  # assignments are opaque to the broker
        for topic, partitions in assigned.items():
            for partition in partitions:
                owners[topic, partition] = member.id
    return owners
