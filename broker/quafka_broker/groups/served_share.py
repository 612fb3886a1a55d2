"""One share group (KIP-932), between the coordinator and its pure core.

Members are served as in a consumer group; the records are in `shares`, and there are no committed
offsets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

from quafka_broker.groups.group import AnyCommit, GroupType, Place
from quafka_broker.groups.host import GroupKind, Host
from quafka_broker.groups.served_consumer import ServedConsumerGroup
from quafka_broker.groups.share.group import ShareGroup
from quafka_broker.groups.table import Key
from quafka_mesh_ops.ops.consumer_groups import KnownTopic
from quafka_proto.errors import ErrorCode

SHARE = "share"
"""The protocol type in lists of groups, as in Kafka."""


class ServedShareGroup(ServedConsumerGroup):
    """One group; see `Group`. For one event loop."""

    core: ShareGroup

    @property
    def kind(self) -> GroupType:
        return GroupType.SHARE

    @property
    def protocol_type(self) -> str:
        return SHARE

    def first_partitions(self, topic_ids: Sequence[bytes]) -> Generator[None, None, list[int]]:
        """See ShareGroup; one step for each topic."""
        found: list[int] = []
        for topic_id in topic_ids:
            found.append(self.core.first_partitions(topic_id))
            yield
        return found

    async def learn_first(self, topics: Iterable[KnownTopic]) -> bool:
        """Learn the topics that are new to the group; returns whether this is durable."""
        self.core.learn_first((each.topic_id, each.partitions) for each in topics)
        self.changes.store()
        return await self.changes.all_stored()

    def forget(self, topic_ids: Iterable[bytes]) -> None:
        """Forget topics; see ShareGroup. Durable after `all_stored`."""
        self.core.forget(topic_ids)
        self.changes.store()

    @property
    def has_no_reader(self) -> bool:
        """This is not a group of consumers, whose lag would grow meanwhile."""
        return False

    def owners(self) -> Mapping[Place, str]:
        """Partitions are shared, and have no owner."""
        return {}

    def heartbeat(self, epoch: int, member_id: str, instance_id: str, now: float, /) -> ErrorCode:
        """Members have a request of their own."""
        return ErrorCode.UNKNOWN_MEMBER_ID

    def may_commit(self, op: AnyCommit, now: float) -> ErrorCode:
        """There is nothing to commit."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def may_fetch_offsets(self, member_id: str | None, epoch: int, /) -> ErrorCode:
        """There are none, which is no error, as in Kafka."""
        return ErrorCode.NONE


def _new_group(host: Host, key: Key) -> ServedShareGroup:
    settings = host.share_settings
    return ServedShareGroup(host, key, ShareGroup(key[1], settings(*key)), settings)


SHARE_GROUPS = GroupKind(GroupType.SHARE, _new_group)
