"""Heartbeats and descriptions of consumer and share groups, as the coordinator serves them.

An answer is sent when all preceding changes of its group are durable: it may contain an epoch, or a
partition that another member gave up, from a change that is still on its way to the log.
"""

from __future__ import annotations

from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.groups.consumer.beat import JOIN, LEAVE, LEAVE_FOR_NOW
from quafka_broker.groups.group import GroupType
from quafka_broker.groups.group_topics import News
from quafka_broker.groups.heartbeat_ops import response
from quafka_broker.groups.host import GroupKind, Host, now
from quafka_broker.groups.migration import topics_to_know, upgrade
from quafka_broker.groups.pace import Pace
from quafka_broker.groups.served_classic import CLASSIC_GROUPS
from quafka_broker.groups.served_consumer import ServedConsumerGroup
from quafka_broker.groups.table import GroupEntry, Key
from quafka_loop.slices import in_slices
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResp,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.consumer_groups import DescribedConsumerGroup

_IN_A_TURN = 10
"""Members that join or leave."""
_MANY = 200
"""Topics that are looked up in one step."""


class ConsumerRequests:
    """The requests of one kind of group: consumer or share groups. For one event loop."""

    def __init__(self, host: Host, groups: GroupKind[ServedConsumerGroup]) -> None:
        self._host = host
        self._groups = groups
        self._kind = groups.kind
        self._pace = Pace(_IN_A_TURN)

    async def heartbeat(self, org: int, op: ConsumerHeartbeat) -> ConsumerHeartbeatResp:
        """Join a group, stay in it, or leave it; the content of the answer is durable."""
        key = (org, op.group)
        refusal = self._refusal(op)
        if refusal is not None:
            return refusal
        found = self._group_of(key, op)
        if isinstance(found, ConsumerHeartbeatResp):
            return found
        asks = found.topics.asks(op, now())
        if asks is not None:
            self._host.drop_if_empty(key)
            return asks
        self._host.figures.heartbeats[self._kind] += 1
        news = await self._news(found, op)
        entry = self._host.find(*key)
        if entry is None or entry.group is not found:  # deleted or moved meanwhile
            return ConsumerHeartbeatResp(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = found.serve(op, now(), news)
        self._host.changed(key, found)
        if (op.member_epoch < 0 or answer.error) and found.must_downgrade:
            self._host.downgrade(key)
        stored = await found.changes.all_stored()
        self._host.drop_if_empty(key)
        if not stored:
            return ConsumerHeartbeatResp(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await in_slices(response(answer))

    def _refusal(self, op: ConsumerHeartbeat) -> ConsumerHeartbeatResp | None:
        """The refusal that does not depend on the group."""
        if not self._host.is_running:
            return ConsumerHeartbeatResp(ErrorCode.NOT_COORDINATOR)
        if not op.group:
            return ConsumerHeartbeatResp(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
        lowest = LEAVE_FOR_NOW if self._kind is GroupType.CONSUMER else LEAVE
        if op.member_epoch < lowest:
            text = f"MemberEpoch is {op.member_epoch}, but must not be below {lowest}."
            return ConsumerHeartbeatResp(ErrorCode.INVALID_REQUEST, text)
        if op.member_epoch == LEAVE_FOR_NOW and not op.instance_id:
            text = "InstanceId can't be null where a static member leaves for a while."
            return ConsumerHeartbeatResp(ErrorCode.INVALID_REQUEST, text)
        if max(len(op.topics or ()), len(op.matched or ())) > self._host.limits.member_topics:
            text = "The member is subscribed to more topics than group.consumer.max.topics allows."
            return ConsumerHeartbeatResp(ErrorCode.INVALID_REQUEST, text)
        return None

    async def _news(self, group: ServedConsumerGroup, op: ConsumerHeartbeat) -> News | None:
        """The news of a heartbeat with many topics, collected in slices; else None.

        A few members join or leave in one turn of the loop: a group may compute a target for each.
        """
        if op.member_epoch <= JOIN:
            await self._pace.turn()
        if max(len(op.topics or ()), len(op.matched or ())) <= _MANY:
            return None
        return await in_slices(group.topics.news(op))

    def _group_of(
        self, key: Key, op: ConsumerHeartbeat
    ) -> ServedConsumerGroup | ConsumerHeartbeatResp:
        """The group that serves a heartbeat, created if needed; or the refusal."""
        entry = self._host.find(*key)
        group = self._groups.of(entry)
        if group is not None:
            return group
        joins = op.member_epoch == 0
        if entry is None and joins and not self._host.may_make(key[0]):
            return ConsumerHeartbeatResp(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not joins:
            what = "Group" if self._kind is GroupType.CONSUMER else "Share group"
            text = f"{what} {op.group} not found."
            return ConsumerHeartbeatResp(ErrorCode.GROUP_ID_NOT_FOUND, text)
        if entry is not None and not self._may_take_over(entry):
            classic = CLASSIC_GROUPS.of(entry)
            if classic is not None and self._kind is GroupType.CONSUMER:
                asks = self._asks_before_upgrade(key, classic, op)
                if asks is not None:
                    return asks
                upgraded = upgrade(self._host, key, classic)
                if upgraded is not None:
                    return upgraded
            text = f"Group {op.group} is not a {self._kind} group."
            return ConsumerHeartbeatResp(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return self._host.become(key, self._groups)

    def _asks_before_upgrade(
        self, key: Key, group: ClassicGroup, op: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResp | None:
        """The topics that must be known before a group is upgraded; None: they are."""
        topics, org = self._host.topics, key[0]
        names = topics_to_know(self._host, group)
        unknown = names.difference(topics.find(org, names, is_whole=op.is_whole))
        if not unknown:
            return None
        more = topics.unsure(org, op.topics or (), now())[0]
        if op.known is None:
            return ConsumerHeartbeatResp(asks=sorted(unknown.union(more)))
        topics.learn(org, unknown.union(more), op.known, now())
        if unknown <= topics.find(org, unknown).keys():
            return None
        text = "Topics of the group's members are at brokers that are not available."
        return ConsumerHeartbeatResp(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)

    def _may_take_over(self, entry: GroupEntry) -> bool:
        """Whether the group may become one of this kind.

        The offsets of an empty consumer group carry over; share groups have none.
        """
        if GroupType.SHARE in (self._kind, entry.group.kind):
            return entry.is_empty
        return entry.group.is_empty and not entry.group.has_pending_members()

    async def create(self, org: int, name: str) -> DescribedConsumerGroup:
        """A group without members: found, or created durably; else the error."""
        key = (org, name)
        found = self._group_of(key, ConsumerHeartbeat(name, "", JOIN))
        if isinstance(found, ConsumerHeartbeatResp):
            return DescribedConsumerGroup(found.error_code, found.error, name)
        if found.member_count:
            text = f"The group {name} is not empty."
            return DescribedConsumerGroup(ErrorCode.NON_EMPTY_GROUP, text, name)
        found.changes.store_own()
        stored = await found.changes.all_stored()
        self._host.drop_if_empty(key)
        error = 0 if stored else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return DescribedConsumerGroup(error, group_id=name)

    async def describe(self, org: int, name: str) -> DescribedConsumerGroup:
        """A group and its members; the error of a group of another kind is Kafka's."""
        entry = self._host.find(org, name)
        group = self._groups.of(entry)
        if group is None:
            what = "not found" if entry is None else f"is not a {self._kind} group"
            text = f"Group {name} {what}."
            return DescribedConsumerGroup(ErrorCode.GROUP_ID_NOT_FOUND, text, name)
        await group.changes.all_stored()
        return await in_slices(group.described())
