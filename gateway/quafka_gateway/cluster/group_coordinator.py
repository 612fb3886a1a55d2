"""Groups and their offsets: ops that go to the broker that coordinates the group.

An unavailable coordinator is NOT_COORDINATOR: clients look for their coordinator, find this gateway
again, and continue. All of these ops are safe to retry.

The coordinator keeps the offsets of topics at other brokers, too, but does not know those topics.
For each op, the gateway therefore gets from the other brokers the current id and the partition
count of each topic. By the id, the coordinator distinguishes the topic from an earlier one with the
same name. If a topic's broker is unavailable, the gateway uses the topic as it last saw it. A topic
that it never saw is COORDINATOR_LOAD_IN_PROGRESS, which clients retry: an answer without committed
offsets would make them start at the wrong offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar
from weakref import WeakValueDictionary

from quafka_gateway.cluster.broker_link import (
    SMALL_OP_SECONDS,
    BrokerLink,
    BrokerUnavailableError,
    coordinator_code,
)
from quafka_gateway.cluster.catalog import NamedTopic
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.heartbeat_intervals import HeartbeatIntervals, is_unchanged
from quafka_gateway.cluster.parked_time import add_parked
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.consumer_groups import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResp,
    KnownTopic,
)
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffset,
    CommitOffsets,
    CommittedOffset,
    CommittedOffsets,
    CommittedOffsetsResp,
    CommittedQuestion,
    DeleteOffsets,
    DeleteOffsetsResp,
)
from quafka_mesh_ops.ops.groups import (
    Heartbeat,
    JoinGroup,
    JoinGroupResp,
    LeaveGroup,
    LeaveGroupResp,
    SyncGroup,
    SyncGroupResp,
)
from quafka_mesh_ops.ops.lag import GroupLag, GroupLagResp, LagOfGroup, LagOfOffsets, PartitionLag
from quafka_mesh_ops.ops.share_groups import ShareHeartbeat
from quafka_mesh_ops.ops.topics import TopicDescription
from quafka_mesh_ops.ops.transactions import CommitTxnOffsets
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

# A group's members wait for each other for as long as the slowest of them may take.
_GROUP_WAIT_SECONDS = 3_600.0
# A person who watches the lag prefers an early error to a long wait.
_LAG_SECONDS = 1.0
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Commit = CommitOffsets | CommitTxnOffsets
"""Offsets that take effect at once, or with their transaction."""
AboutTopic = TypeVar("AboutTopic", CommitOffset, CommittedQuestion)
Found = dict[NamedTopic, TopicDescription]
"""The topics at other brokers than the coordinator."""


class GroupCoordinator:
    """One broker as a coordinator: one method per op, except for those that it answers alone."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        """`number`: that of the broker."""
        self._cluster = cluster
        self._number = number
        self._link = cluster.links[number]
        self._intervals = HeartbeatIntervals()
        self._commits: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    # --- members ----------------------------------------------------------------------------

    async def join_group(self, op: JoinGroup, trace: TraceContext | None) -> JoinGroupResp:
        """Join; parked at the broker until the group's next generation begins."""
        try:
            answer = await self._link.call(op, trace, _GROUP_WAIT_SECONDS)
        except BrokerUnavailableError as e:
            return JoinGroupResp(_member_code(e), op.member_id)
        add_parked(answer.parked_us / 1e6)
        return answer

    async def sync_group(self, op: SyncGroup, trace: TraceContext | None) -> SyncGroupResp:
        """Get an assignment; parked at the broker until the leader has made it."""
        try:
            answer = await self._link.call(op, trace, _GROUP_WAIT_SECONDS)
        except BrokerUnavailableError as e:
            return SyncGroupResp(_member_code(e))
        add_parked(answer.parked_us / 1e6)
        return answer

    async def heartbeat(self, op: Heartbeat, trace: TraceContext | None) -> int:
        """Keep a member alive; the error code that the member is given.

        The op waits a moment for others, unless `hurry` is called.
        """
        try:
            return await self._link.heartbeat(op, trace)
        except BrokerUnavailableError as e:
            return coordinator_code(e)

    def hurry(self) -> None:
        """Send the held heartbeats now."""
        self._link.hurry()

    async def consumer_heartbeat(
        self, op: ConsumerHeartbeat, trace: TraceContext | None
    ) -> ConsumerHeartbeatResp:
        """A heartbeat of KIP-848. An answer may ask for topics: see `look_up`.

        A heartbeat that reports no change is sent together with others, as in the classic
        protocol. The coordinator answers it without an error if it has no change to report either.
        """
        interval_ms = self._intervals.get(op.group, self._now()) if is_unchanged(op) else 0
        try:
            if interval_ms:
                beat = Heartbeat(op.group, op.member_epoch, op.member_id, op.instance_id or "")
                if not await self._link.heartbeat(beat, trace):
                    return ConsumerHeartbeatResp(0, "", op.member_id, op.member_epoch, interval_ms)
            whole = replace(op, is_whole=self._cluster.only is not None)
            answer = await self._link.call(whole, trace)
        except BrokerUnavailableError as e:
            return ConsumerHeartbeatResp(_member_code(e))
        if answer.heartbeat_interval_ms:
            self._intervals.put(op.group, answer.heartbeat_interval_ms, self._now())
        return answer

    async def share_heartbeat(
        self, op: ShareHeartbeat, trace: TraceContext | None
    ) -> ConsumerHeartbeatResp:
        """A heartbeat of a member of a share group. An answer may ask for topics: see `look_up`."""
        try:
            whole = replace(op, is_whole=self._cluster.only is not None)
            return await self._link.call(whole, trace)
        except BrokerUnavailableError as e:
            return ConsumerHeartbeatResp(_member_code(e))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def look_up(self, names: Sequence[str], trace: TraceContext | None) -> list[KnownTopic]:
        """The topics, as far as other brokers have them.

        Topics of unavailable brokers that the gateway never saw are left out.
        """
        if self._cluster.only is not None:
            return []
        found = await self._elsewhere(((name, b"") for name in names), trace)
        known: list[KnownTopic] = []
        for name in names:
            topic = found.get((name, b""))
            if topic is None or topic.error_code in _UNKNOWN:
                known.append(KnownTopic(name))
            elif not topic.error_code:
                known.append(KnownTopic(name, topic.topic_id, topic.partitions))
        return known

    async def leave_group(self, op: LeaveGroup, trace: TraceContext | None) -> LeaveGroupResp:
        """Remove members."""
        try:
            return await self._link.call(op, trace)
        except BrokerUnavailableError as e:
            return LeaveGroupResp(coordinator_code(e), [])

    # --- groups -----------------------------------------------------------------------------

    async def call(
        self, op: Op[R], trace: TraceContext | None, seconds: float = SMALL_OP_SECONDS
    ) -> R:
        """Send an op that needs nothing but the coordinator, and return its answer.

        Raises:
            BrokerUnavailableError: with the error code that clients of a coordinator expect.
        """
        try:
            return await self._link.call(op, trace, seconds)
        except BrokerUnavailableError as e:
            raise BrokerUnavailableError(str(e), coordinator_code(e)) from e

    async def group_lag(self, op: GroupLag, trace: TraceContext | None) -> GroupLagResp:
        """How far groups lag. A topic at an unavailable broker has an offset and no lag.

        Raises:
            BrokerUnavailableError: early if the coordinator is disconnected.
        """
        seconds = SMALL_OP_SECONDS if self._link.connected else _LAG_SECONDS
        if self._cluster.only is not None:
            return await self.call(op, trace, seconds)
        answer = await self.call(replace(op, elsewhere=True), trace, seconds)
        parts = [part for group in answer.groups for part in group.partitions or []]
        names = dict.fromkeys(part.topic for part in parts if part.high_watermark < 0)
        found = await self._elsewhere(((name, b"") for name in names), trace)
        groups = [await self._with_lag_elsewhere(group, found, trace) for group in answer.groups]
        return replace(answer, groups=groups)

    # --- offsets ----------------------------------------------------------------------------

    def commit_offsets(self, op: Commit, trace: TraceContext | None) -> Awaitable[list[int]]:
        """Commit offsets, durably, now or with a transaction; one error code for each."""
        if self._cluster.only is not None:
            return self._commit(op, trace)
        return self._commit_in_turn(op, trace)

    async def committed_offsets(
        self, op: CommittedOffsets, trace: TraceContext | None
    ) -> CommittedOffsetsResp:
        """Look up committed offsets."""
        if self._cluster.only is None and op.topics is not None:
            found = await self._elsewhere(((q.topic, q.topic_id) for q in op.topics), trace)
            if any(topic.error_code not in (0, *_UNKNOWN) for topic in found.values()):
                return CommittedOffsetsResp([], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            op = replace(
                op, topics=[_about(q, found.get((q.topic, q.topic_id))) for q in op.topics]
            )
        try:
            answer = await self._link.call(op, trace)
        except BrokerUnavailableError as e:
            return CommittedOffsetsResp([], coordinator_code(e))
        if self._cluster.only is None and op.topics is None:
            return await self._without_deleted(answer, trace)
        return answer

    async def delete_offsets(
        self, op: DeleteOffsets, trace: TraceContext | None
    ) -> DeleteOffsetsResp:
        """Delete committed offsets, durably."""
        refusals: list[int] = []
        if self._cluster.only is None:
            found = await self._elsewhere(((q.topic, q.topic_id) for q in op.topics), trace)
            accepted: list[CommittedQuestion] = []
            for question in op.topics:
                topic = found.get((question.topic, question.topic_id))
                errors = [_refusal(topic, partition) for partition in question.partitions]
                refusals += errors
                its = [p for p, error in zip(question.partitions, errors, strict=True) if not error]
                accepted.append(_about(replace(question, partitions=its), topic))
            op = replace(op, topics=accepted)
        try:
            answer = await self._link.call(op, trace)
        except BrokerUnavailableError as e:
            return DeleteOffsetsResp(coordinator_code(e), [])
        if answer.error_code or not refusals:
            return answer
        return DeleteOffsetsResp(0, _merged(refusals, answer.partitions))

    async def _commit(self, op: Commit, trace: TraceContext | None) -> list[int]:
        try:
            if isinstance(op, CommitTxnOffsets):
                home = self._cluster.link_of_transaction(op.producer.transactional_id)
                if home is not self._link:
                    if not home.node_id:  # never connected: clients retry
                        return [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * len(op.offsets)
                    op = replace(op, home=home.node_id)
                return (await self._link.call(op, trace)).partitions
            return (await self._link.call(op, trace)).partitions
        except BrokerUnavailableError as e:
            code = coordinator_code(e)
            if code == ErrorCode.MESSAGE_TOO_LARGE:
                code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            return [code] * len(op.offsets)

    async def _commit_in_turn(self, op: Commit, trace: TraceContext | None) -> list[int]:
        """A member's commits take turns while topics are looked up: the later one must win."""
        turn = self._commits.setdefault((op.group, op.member_id), asyncio.Lock())
        try:
            async with asyncio.timeout(SMALL_OP_SECONDS):
                await turn.acquire()
        except TimeoutError:  # the earlier commit waits for a broker; this one would wait, too
            return [ErrorCode.NOT_COORDINATOR] * len(op.offsets)
        try:
            return await self._commit_elsewhere(op, trace)
        finally:
            turn.release()

    async def _commit_elsewhere(self, op: Commit, trace: TraceContext | None) -> list[int]:
        found = await self._elsewhere(((o.topic, o.topic_id) for o in op.offsets), trace)
        refusals: list[int] = []
        accepted: list[CommitOffset] = []
        for offset in op.offsets:
            topic = found.get((offset.topic, offset.topic_id))
            refusals.append(_refusal(topic, offset.partition))
            if not refusals[-1]:
                accepted.append(_about(offset, topic))
        answers = await self._commit(replace(op, offsets=accepted), trace) if accepted else []
        return _merged(refusals, answers)

    # --- topics at other brokers ------------------------------------------------------------

    async def _elsewhere(self, topics: Iterable[NamedTopic], trace: TraceContext | None) -> Found:
        unique = list(dict.fromkeys(topics))
        return await self._cluster.catalog.describe_elsewhere(unique, self._number, trace)

    async def _without_deleted(
        self, answer: CommittedOffsetsResp, trace: TraceContext | None
    ) -> CommittedOffsetsResp:
        """Leave out the offsets of deleted topics, even if a new topic has the name."""
        names = dict.fromkeys(offset.topic for offset in answer.offsets)
        found = await self._elsewhere(((name, b"") for name in names), trace)

        def is_live(offset: CommittedOffset) -> bool:
            topic = found.get((offset.topic, b""))
            if topic is None or topic.error_code not in (0, *_UNKNOWN):
                return True
            return not topic.error_code and topic.topic_id == offset.topic_id

        return replace(answer, offsets=[each for each in answer.offsets if is_live(each)])

    async def _with_lag_elsewhere(
        self, group: LagOfGroup, found: Found, trace: TraceContext | None
    ) -> LagOfGroup:
        """The group with the lag that other brokers know."""
        known: list[PartitionLag] = []
        others: list[PartitionLag] = []
        for part in group.partitions or []:
            topic = found.get((part.topic, b""))
            if part.high_watermark >= 0:
                known.append(part)
            elif topic is not None and topic.error_code not in _UNKNOWN:
                is_older = not topic.error_code and topic.topic_id != part.topic_id
                others.append(replace(part, committed=-1) if is_older else part)
        answers = await self._lag_elsewhere(group.group, others, trace) if others else []
        known += [
            replace(answer, member_id=other.member_id)
            for answer, other in zip(answers, others, strict=True)
            if answer.high_watermark >= 0 or answer is other
        ]
        known.sort(key=lambda part: (part.topic, part.partition))
        return replace(group, partitions=known)

    async def _lag_elsewhere(
        self, group: str, parts: Sequence[PartitionLag], trace: TraceContext | None
    ) -> list[PartitionLag]:
        """The lag in topics of other brokers; `parts` unchanged if the broker is unavailable."""

        async def call(link: BrokerLink, its: list[PartitionLag]) -> list[PartitionLag]:
            if link.connected:
                with suppress(BrokerUnavailableError):
                    return (await link.call(LagOfOffsets(group, its), trace)).partitions
            return its

        return await self._cluster.spread_by_topic(parts, call)


def _member_code(error: BrokerUnavailableError) -> int:
    """The error code for a member: an op too large for the mesh means a group that is too large."""
    code = coordinator_code(error)
    too_large = code == ErrorCode.MESSAGE_TOO_LARGE
    return ErrorCode.GROUP_MAX_SIZE_REACHED if too_large else code


def _refusal(topic: TopicDescription | None, partition: int) -> int:
    """Why another broker has no such partition; NONE for topics that the coordinator checks."""
    if topic is None:
        return ErrorCode.NONE
    if topic.error_code in _UNKNOWN:
        return topic.error_code
    if topic.error_code:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    in_range = 0 <= partition < topic.partitions
    return ErrorCode.NONE if in_range else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _about(part: AboutTopic, topic: TopicDescription | None) -> AboutTopic:
    """The same part, with the name and the id of a topic that another broker has."""
    if topic is None:
        return part
    return replace(part, topic=topic.topic, topic_id=topic.topic_id, elsewhere=True)


def _merged(refusals: Sequence[int], answers: Iterable[int]) -> list[int]:
    """One error code for each: the refusal, or else the next answer."""
    others = iter(answers)
    return [refusal or next(others) for refusal in refusals]
