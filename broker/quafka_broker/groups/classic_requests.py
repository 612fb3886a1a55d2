"""The requests of the members of classic groups, as the coordinator serves them."""

from __future__ import annotations

import asyncio
from functools import partial

from quafka_broker.groups import migration
from quafka_broker.groups.host import Host, now
from quafka_broker.groups.limits import refusal_of_any
from quafka_broker.groups.served_classic import CLASSIC_GROUPS
from quafka_broker.groups.served_consumer import CONSUMER_GROUPS, ServedConsumerGroup
from quafka_broker.groups.table import Key
from quafka_mesh_ops.ops.groups import (
    Heartbeat,
    JoinedHeartbeat,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    SyncGroup,
    SyncGroupResp,
)
from quafka_proto.errors import ErrorCode


class ClassicRequests:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup of all groups. For one event loop."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def join(self, org: int, op: JoinGroup) -> JoinGroupResp:
        """Join a group; returns when the next generation begins."""
        key = (org, op.group)
        if not self._host.is_running:
            return JoinGroupResp(ErrorCode.NOT_COORDINATOR, op.member_id)
        if self._host.find(*key) is None:
            error = self._refusal_of_new(org, op)
            if error:
                return JoinGroupResp(error, op.member_id)
        entry = self._host.find_or_make(key)
        group = CLASSIC_GROUPS.of(entry)
        if group is None:
            consumers = CONSUMER_GROUPS.of(entry)
            if consumers is not None and not consumers.is_empty:
                return await self._join_consumers(consumers, key, op)
            if consumers is None and not entry.is_empty:  # a share group
                return JoinGroupResp(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, op.member_id)
            group = self._host.become(key, CLASSIC_GROUPS)
        answer: asyncio.Future[JoinGroupResp] = asyncio.get_running_loop().create_future()
        reply = partial(self._host.answers.resolve, answer)
        member_id = group.join(op, now(), reply)
        self._host.changed(key, group)
        if entry.has_only_pending_members and group.has_pending_members():
            self._host.only_has_pending(key)
        self._host.drop_if_empty(key)
        try:
            return await answer
        finally:
            if answer.cancelled():
                group.abandon_join(member_id, reply, now())
                self._host.changed(key, group)

    async def sync(self, org: int, op: SyncGroup) -> SyncGroupResp:
        """Get an assignment; returns once the leader has sent the assignments."""
        key = (org, op.group)
        if not self._host.is_running:
            return SyncGroupResp(ErrorCode.NOT_COORDINATOR)
        consumers = CONSUMER_GROUPS.of(self._host.find(*key))
        if consumers is not None:
            return await migration.sync(consumers, op)
        group = CLASSIC_GROUPS.of(self._host.find(*key))
        if group is None:
            return SyncGroupResp(_of_unknown(op.group))
        answer: asyncio.Future[SyncGroupResp] = asyncio.get_running_loop().create_future()
        reply = partial(self._host.answers.resolve, answer)
        group.sync(op, now(), reply)
        self._host.changed(key, group)
        try:
            return await answer
        finally:
            if answer.cancelled():
                group.abandon_sync(op.member_id, reply, now())
                self._host.changed(key, group)

    def heartbeat(self, org: int, op: Heartbeat | JoinedHeartbeat) -> ErrorCode:
        """Extend a member's session."""
        entry = self._host.find(org, op.group)
        if entry is None:
            return _of_unknown(op.group)
        self._host.figures.heartbeats[entry.group.kind] += 1
        return entry.group.heartbeat(op.generation, op.member_id, op.instance_id, now())

    def leave(self, org: int, op: LeaveGroup) -> tuple[ErrorCode, list[ErrorCode]]:
        """Remove members; the group's error, and the error of each."""
        key = (org, op.group)
        consumers = CONSUMER_GROUPS.of(self._host.find(*key))
        if consumers is not None:
            answers = migration.leave(consumers, op.leavers)
            if consumers.must_downgrade:
                self._host.downgrade(key)
            self._host.drop_if_empty(key)
            return ErrorCode.NONE, answers
        group = CLASSIC_GROUPS.of(self._host.find(*key))
        if group is None:
            if not op.group:
                return ErrorCode.INVALID_GROUP_ID, []
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(op.leavers)
        answers = group.leave(op.leavers, now())
        self._host.changed(key, group)
        self._host.drop_if_empty(key)
        return ErrorCode.NONE, answers

    async def _join_consumers(
        self, group: ServedConsumerGroup, key: Key, op: JoinGroup
    ) -> JoinGroupResp:
        """Join a group of the consumer protocol as a member of the classic one."""
        error = refusal_of_any(op, self._host.limits)
        if not error and not self._host.limits.may_mix:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error:
            return JoinGroupResp(error, op.member_id)
        answer = await migration.join(self._host, group, key, op)
        entry = self._host.find(*key)
        if entry is not None and entry.group is group and group.must_downgrade:
            self._host.downgrade(key)
        return answer

    def _refusal_of_new(self, org: int, op: JoinGroup) -> ErrorCode:
        """The error of a join of an unknown group. A refused join creates no group."""
        error = refusal_of_any(op, self._host.limits)
        if error:
            return error
        if op.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if self._host.may_make(org) else ErrorCode.GROUP_MAX_SIZE_REACHED


def _of_unknown(group: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group else ErrorCode.INVALID_GROUP_ID
