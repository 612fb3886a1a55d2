"""A consumer of a KIP-848 group: the coordinator assigns, heartbeats carry everything."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from quafka_proto.schema.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)
from tests.sim.clients.answers import NO_MEMBER
from tests.sim.clients.assigning import by_name
from tests.sim.clients.ids import new_uuid
from tests.sim.clients.job import Job, Place
from tests.sim.clients.member import REBALANCE_S, GroupMember
from tests.sim.clients.wire import LostError

_JOINING, _LEAVING = 0, -1
_RETRY_S = 1.0


class GroupConsumer(GroupMember):
    """A task sends heartbeats; the work between two fetches brings what it owns to the target."""

    protocol = "consumer"

    def __init__(self, job: Job, group: str, topics: list[str]) -> None:
        super().__init__(job, group, topics)
        self.member = new_uuid(job.random)
        self.epoch = _JOINING
        self._target: set[Place] = set()
        self._reported: set[Place] | None = None
        """What the coordinator knows that this member owns; None: tell it everything again."""
        self._wake = asyncio.Event()
        self._interval = _RETRY_S

    async def _step(self) -> None:
        if self.owned != self._target and self.epoch > 0:
            await self._reconcile()
        await self.work()

    async def _reconcile(self) -> None:
        if self.owned - self._target:
            try:
                await self.commit()
            except LostError:
                await self.coordinator.back_off()
            self.release(self.owned - self._target)
        if self.epoch > 0:
            self.gain(self._target - self.owned)
        self._wake.set()

    async def _beats(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._beat()
            except LostError:
                self._reported = None
                await self.coordinator.back_off()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._wake.wait()

    async def _beat(self) -> None:
        epoch, everything = self.epoch, self._reported is None or self.epoch == _JOINING
        owned = set(self.owned)
        parts = await self._by_id(owned) if everything or owned != self._reported else None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member,
            member_epoch=epoch,
            rebalance_timeout_ms=round(REBALANCE_S * 1000) if everything else -1,
            subscribed_topic_names=self.subscription if everything else None,
            topic_partitions=parts,
        )
        if epoch != self.epoch or owned != self.owned:
            self._wake.set()  # changed while topic ids were looked up
            return
        answer = await self.coordinator.call(request, ConsumerGroupHeartbeatResponse)
        if epoch != self.epoch:
            return  # the work has learnt in between that this is no member any more
        if answer.error_code:
            self._reported = None
            self._interval = _RETRY_S
            self.refused(answer.error_code)
            return
        self.epoch = answer.member_epoch
        self._reported = owned
        self._interval = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._target = await self._places(answer.assignment.topic_partitions)

    def refused(self, code: int) -> None:
        """Join again if the coordinator does not know this member or epoch."""
        if code in NO_MEMBER:
            self.lose()
            self.epoch = _JOINING
            self._target = set()
            self._wake.set()

    async def _leave(self) -> None:
        await self.commit()
        self.release(self.owned, leaving=True)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member, member_epoch=_LEAVING
        )
        await self.coordinator.call(request, ConsumerGroupHeartbeatResponse)

    def _of_member(self) -> tuple[str, int] | None:
        return self.member, self.epoch

    async def _by_id(self, places: set[Place]) -> list[ConsumerGroupTopicPartitions]:
        topics = await self.topics.find(*self.subscription)
        return [
            ConsumerGroupTopicPartitions(topic_id=topics[name].id, partitions=its)
            for name, its in by_name(sorted(places)).items()
            if name in topics
        ]

    async def _places(self, parts: list[ConsumerGroupTopicPartitions]) -> set[Place]:
        if any(part.topic_id not in self.topics.names for part in parts):
            self.topics.forget(*self.subscription)
            await self.topics.find(*self.subscription)
        return {
            (self.topics.names[part.topic_id], partition)
            for part in parts
            if part.topic_id in self.topics.names
            for partition in part.partitions
        }
