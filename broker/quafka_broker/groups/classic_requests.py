"""The requests of the members of classic groups, as the coordinator serves them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from quafka_broker.groups import migration
from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.groups.classic.rebalance import RebalancingGroup, Saved
from quafka_broker.groups.group import Kind
from quafka_broker.groups.host import Host, now
from quafka_broker.groups.limits import refusal_of_any
from quafka_broker.groups.served_consumer import ServedConsumerGroup
from quafka_broker.groups.table import Key
from quafka_mesh_ops.ops.groups import (
    Beat,
    Heartbeat,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    SyncGroup,
    SyncGroupResp,
)
from quafka_proto.errors import ErrorCode


def new_group(host: Host, key: Key) -> ClassicGroup:
    """An empty group."""
    return ClassicGroup(key[1], host.limits, partial(_save, host, key), usage=host.usage(key[0]))


def _save(
    host: Host, key: Key, group: RebalancingGroup, stored: dict[str, Any], saved: Saved
) -> None:
    """Make a group's state durable, then call `saved`."""
    assert isinstance(group, ClassicGroup)
    group.since_ms = host.now_ms()
    event = {
        "event": "group", "org": key[0], "group": key[1], "since_ms": group.since_ms, **stored
    }  # fmt: skip
    host.append(key, group, event, lambda stored: saved(stored, now()))


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
        group = entry.group
        if not isinstance(group, ClassicGroup):
            is_share = group.kind is Kind.SHARE
            if isinstance(group, ServedConsumerGroup) and not (is_share or group.is_empty):
                return await self._join_consumers(group, key, op)
            if not group.is_empty or (is_share and not entry.is_empty):
                return JoinGroupResp(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, op.member_id)
            group = self._host.become(key, Kind.CLASSIC)
            assert isinstance(group, ClassicGroup)
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
        consumers = self._consumers(*key)
        if consumers is not None:
            return await migration.sync(consumers, op)
        group = self._find(*key)
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

    def heartbeat(self, org: int, op: Heartbeat | Beat) -> ErrorCode:
        """Extend a member's session."""
        entry = self._host.find(org, op.group)
        if entry is None:
            return _of_unknown(op.group)
        self._host.figures.heartbeats[entry.group.kind] += 1
        return entry.group.heartbeat(op.generation, op.member_id, op.instance_id, now())

    def leave(self, org: int, op: LeaveGroup) -> tuple[ErrorCode, list[ErrorCode]]:
        """Remove members; the group's error, and the error of each."""
        key = (org, op.group)
        consumers = self._consumers(*key)
        if consumers is not None:
            answers = migration.leave(consumers, op.leavers)
            if consumers.must_downgrade:
                self._host.downgrade(key)
            self._host.drop_if_empty(key)
            return ErrorCode.NONE, answers
        group = self._find(*key)
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

    def _consumers(self, org: int, name: str) -> ServedConsumerGroup | None:
        """A group of the consumer protocol; None if it is unknown, or of another kind."""
        entry = self._host.find(org, name)
        group = entry.group if entry is not None else None
        if isinstance(group, ServedConsumerGroup) and group.kind is Kind.CONSUMER:
            return group
        return None

    def _find(self, org: int, name: str) -> ClassicGroup | None:
        """A classic group; None if it is unknown, or of another kind."""
        entry = self._host.find(org, name)
        group = entry.group if entry is not None else None
        return group if isinstance(group, ClassicGroup) else None

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
