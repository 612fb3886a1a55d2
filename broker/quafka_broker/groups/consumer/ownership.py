"""The owners of partitions: no partition ever has two. Pure."""

from __future__ import annotations

from collections.abc import Collection

from quafka_broker.groups.consumer.member import ConsumerGroupMember
from quafka_broker.groups.consumer.topics import Held, each


class Ownership:
    """The owners of partitions. A member owns those that it may read or still has to give up."""

    def __init__(self) -> None:
        self._owners: dict[bytes, dict[int, str]] = {}

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """The id of the member that has a partition."""
        return self._owners.get(topic_id, {}).get(partition)

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        """Whether no member has a partition."""
        return partition not in self._owners.get(topic_id, ())

    def taken(self, topic_id: bytes) -> Collection[int]:
        """The partitions of a topic that have an owner."""
        return self._owners.get(topic_id, ())

    def release(self, assigned: Held, revoking: Held) -> None:
        """Free the partitions of a member."""
        for held in (assigned, revoking):
            for topic_id, partitions in held.items():
                owners = self._owners[topic_id]
                for partition in partitions:
                    del owners[partition]
                if not owners:
                    del self._owners[topic_id]

    def claim(self, member: ConsumerGroupMember) -> None:
        """Record the partitions of a member, all of which must be free."""
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                mine = dict.fromkeys(partitions, member.id)
                owners = self._owners.setdefault(topic_id, mine)
                if owners is not mine:
                    assert owners.keys().isdisjoint(mine), f"{owners} have {partitions}"
                    owners.update(mine)

    def overlaps(self, member: ConsumerGroupMember) -> list[str]:
        """The owners of partitions that this member also claims."""
        found = {
            self.owner(*at) for held in (member.assigned, member.revoking) for at in each(held)
        }
        return [owner for owner in found if owner is not None]
