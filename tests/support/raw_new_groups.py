"""Members of consumer groups (KIP-848) and share groups (KIP-932) without a client library."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from quafka_proto.schema import share_fetch, share_groups
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)
from tests.support.raw_group import LOADING, MOVED, NOT_THERE, Connection

Place = tuple[bytes, int]
"""A topic's id and a partition."""
_AGAIN = (LOADING, NOT_THERE, MOVED)
ACCEPT = 1


@dataclass(slots=True, eq=False)
class RawConsumer:
    """A member of a consumer group that gives up at once what it is told to."""

    connection: Connection
    group: str
    topics: list[str]
    id: str = field(default_factory=lambda: str(uuid4()))
    epoch: int = 0
    owned: set[Place] = field(default_factory=set[Place])

    async def beat(self, *, says_owned: bool = True) -> bool:
        """A heartbeat; whether the answer changed what the member has."""
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=self.topics if joins else None,
            topic_partitions=_by_topic(self.owned) if joins or says_owned else None,
        )
        while True:
            answer = await self.connection.call(request, ConsumerGroupHeartbeatResponse, 1)
            if answer.error_code not in _AGAIN:
                break
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return False
        before, self.owned = self.owned, {
            (topic.topic_id, partition)
            for topic in answer.assignment.topic_partitions
            for partition in topic.partitions
        }  # fmt: skip
        return before != self.owned

    async def leave(self) -> None:
        """Leave the group."""
        self.epoch = -1
        self.owned = set()
        await self.beat(says_owned=False)


def _by_topic(places: set[Place]) -> list[ConsumerGroupTopicPartitions]:
    found: dict[bytes, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return [
        ConsumerGroupTopicPartitions(topic_id=topic, partitions=its) for topic, its in found.items()
    ]


@dataclass(slots=True, eq=False)
class RawShareConsumer:
    """A member of a share group that accepts everything, with its next fetch."""

    connection: Connection
    group: str
    topic: str
    id: str = field(default_factory=lambda: str(uuid4()))
    epoch: int = 0
    session: int = 0
    assigned: set[Place] = field(default_factory=set[Place])
    _held: dict[Place, list[tuple[int, int]]] = field(
        default_factory=dict[Place, list[tuple[int, int]]]
    )

    async def join(self) -> None:
        """Join the group, until there is an assignment."""
        while not self.assigned:
            request = share_groups.ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.id,
                member_epoch=self.epoch,
                subscribed_topic_names=[self.topic],
            )
            answer = await self.connection.call(
                request, share_groups.ShareGroupHeartbeatResponse, 1
            )
            if answer.error_code in _AGAIN:
                continue
            assert answer.error_code == 0, (answer.error_code, answer.error_message)
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {
                    (topic.topic_id, partition)
                    for topic in answer.assignment.topic_partitions
                    for partition in topic.partitions
                }

    async def leave(self) -> None:
        """End the share session, and leave the group."""
        self._held = {}
        self.session = -1
        await self.fetch(wait_ms=0)
        request = share_groups.ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=-1
        )
        answer = await self.connection.call(request, share_groups.ShareGroupHeartbeatResponse, 1)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        self.connection.close()

    async def fetch(self, most: int = 500, wait_ms: int = 200) -> int:
        """Accept what was acquired before, and acquire more; the number of records accepted."""
        held, self._held = self._held, {}
        topics: dict[bytes, list[share_fetch.ShareFetchPartition]] = {}
        for place in self.assigned if self.session == 0 else held:
            acks = [
                share_fetch.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=[ACCEPT]
                )
                for first, last in held.get(place, ())
            ]
            topics.setdefault(place[0], []).append(
                share_fetch.ShareFetchPartition(
                    partition_index=place[1], acknowledgement_batches=acks
                )
            )
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.session,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=0 if self.session < 0 else most,
            batch_size=most,
            topics=[
                share_fetch.ShareFetchTopic(topic_id=topic, partitions=its)
                for topic, its in topics.items()
            ],
        )
        answer = await self.connection.call(request, share_fetch.ShareFetchResponse, 1)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        self.session += 1
        for topic in answer.responses:
            for part in topic.partitions:
                assert part.acknowledge_error_code == 0, part.acknowledge_error_message
                if part.acquired_records:
                    self._held[topic.topic_id, part.partition_index] = [
                        (some.first_offset, some.last_offset) for some in part.acquired_records
                    ]
        return sum(last - first + 1 for its in held.values() for first, last in its)
