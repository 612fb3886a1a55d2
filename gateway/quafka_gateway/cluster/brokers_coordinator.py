"""Groups over topics of several brokers: the home broker keeps all of their offsets.

It does not know the other brokers' topics. So the gateway asks those brokers, for each op: which
id the topic has now, by which the home broker tells it from an earlier one of its name, and how
many partitions. Where such a broker is away, the topic is what it was when it was last seen; what
was never seen is COORDINATOR_LOAD_IN_PROGRESS, which clients retry. To say that nothing is
committed there would make them begin anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar
from weakref import WeakValueDictionary

from quafka_gateway.cluster.broker_link import SMALL_OP_SECONDS, BrokerLink
from quafka_gateway.cluster.brokers import Brokers
from quafka_gateway.cluster.coordinator import Coordinator
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
from quafka_mesh_ops.ops.lag import GroupLag, GroupLagResp, LagOfGroup, LagOfOffsets, PartitionLag
from quafka_mesh_ops.ops.topics import TopicDescription
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Part = TypeVar("Part", CommitOffset, CommittedQuestion)

NamedTopic = tuple[str, bytes]
"""A topic by name or, where that is empty, by id."""


class BrokersCoordinator(Coordinator):
    """The home broker's groups, and what it must know of the other brokers' topics."""

    def __init__(self, home: BrokerLink, brokers: Brokers) -> None:
        super().__init__(home)
        self._brokers = brokers
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def commit_offsets(self, op: CommitOffsets, trace: TraceContext | None) -> list[int]:
        """Commit offsets, durably; one error code for each.

        One commit of a member after the other: of two in a row, the second must win.
        """
        turn = self._turns.setdefault((op.group, op.member_id), asyncio.Lock())
        try:
            async with asyncio.timeout(SMALL_OP_SECONDS):
                await turn.acquire()
        except TimeoutError:  # the one before waits for a broker, and would be waited for
            return [ErrorCode.NOT_COORDINATOR] * len(op.offsets)
        try:
            return await self._commit(op, trace)
        finally:
            turn.release()

    async def _commit(self, op: CommitOffsets, trace: TraceContext | None) -> list[int]:
        found = await self._elsewhere([(o.topic, o.topic_id) for o in op.offsets], trace)
        refusals: list[int] = []
        good: list[CommitOffset] = []
        for part in op.offsets:
            topic = found.get((part.topic, part.topic_id))
            refusals.append(_refusal(topic, part.partition))
            if not refusals[-1]:
                good.append(_there(part, topic))
        answers: list[int] = []
        if good:
            answers = await super().commit_offsets(replace(op, offsets=good), trace)
        return _merged(refusals, answers)

    async def committed_offsets(
        self, op: CommittedOffsets, trace: TraceContext | None
    ) -> CommittedOffsetsResp:
        """What was committed."""
        if op.topics is None:
            return await self._all_committed(op, trace)
        found = await self._elsewhere([(q.topic, q.topic_id) for q in op.topics], trace)
        if any(topic.error_code not in (0, *_UNKNOWN) for topic in found.values()):
            return CommittedOffsetsResp([], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        questions = [_there(q, found.get((q.topic, q.topic_id))) for q in op.topics]
        return await super().committed_offsets(replace(op, topics=questions), trace)

    async def _all_committed(
        self, op: CommittedOffsets, trace: TraceContext | None
    ) -> CommittedOffsetsResp:
        """Those in topics that are gone, or were made anew, are not there any more."""
        answer = await super().committed_offsets(op, trace)
        names = dict.fromkeys(offset.topic for offset in answer.offsets)
        found = await self._elsewhere([(name, b"") for name in names], trace)

        def is_live(offset: CommittedOffset) -> bool:
            topic = found.get((offset.topic, b""))
            if topic is None or topic.error_code not in (0, *_UNKNOWN):
                return True
            return not topic.error_code and topic.topic_id == offset.topic_id

        return replace(answer, offsets=[each for each in answer.offsets if is_live(each)])

    async def delete_offsets(
        self, op: DeleteOffsets, trace: TraceContext | None
    ) -> DeleteOffsetsResp:
        """Delete committed offsets, durably."""
        found = await self._elsewhere([(q.topic, q.topic_id) for q in op.topics], trace)
        refusals: list[int] = []
        good: list[CommittedQuestion] = []
        for question in op.topics:
            topic = found.get((question.topic, question.topic_id))
            errors = [_refusal(topic, partition) for partition in question.partitions]
            refusals += errors
            asked = [p for p, error in zip(question.partitions, errors, strict=True) if not error]
            good.append(_there(replace(question, partitions=asked), topic))
        answer = await super().delete_offsets(replace(op, topics=good), trace)
        if answer.error_code:
            return answer
        return DeleteOffsetsResp(0, _merged(refusals, answer.partitions))

    async def group_lag(self, op: GroupLag, trace: TraceContext | None) -> GroupLagResp:
        """How far behind groups are. Of a topic whose broker is away only the offset is known."""
        answer = await super().group_lag(replace(op, elsewhere=True), trace)
        every = [part for group in answer.groups for part in group.partitions or []]
        names = dict.fromkeys(part.topic for part in every if part.high_watermark < 0)
        found = await self._elsewhere([(name, b"") for name in names], trace)
        groups = [await self._with_others(group, found, trace) for group in answer.groups]
        return replace(answer, groups=groups)

    async def _with_others(
        self,
        group: LagOfGroup,
        found: dict[NamedTopic, TopicDescription],
        trace: TraceContext | None,
    ) -> LagOfGroup:
        known: list[PartitionLag] = []
        others: list[PartitionLag] = []
        for part in group.partitions or []:
            topic = found.get((part.topic, b""))
            if part.high_watermark >= 0:
                known.append(part)
            elif topic is not None and topic.error_code not in _UNKNOWN:
                is_older = not topic.error_code and topic.topic_id != part.topic_id
                others.append(replace(part, committed=-1) if is_older else part)
        asked = LagOfOffsets(group.group, others)
        answers = await self._brokers.lag_of_offsets(asked, trace) if others else []
        known += [
            replace(answer, member_id=other.member_id)
            for answer, other in zip(answers, others, strict=True)
            if answer.high_watermark >= 0 or answer is other
        ]
        known.sort(key=lambda part: (part.topic, part.partition))
        return replace(group, partitions=known)

    async def _elsewhere(
        self, topics: Iterable[NamedTopic], trace: TraceContext | None
    ) -> dict[NamedTopic, TopicDescription]:
        """What is known of those that are not the home broker's."""
        return await self._brokers.describe_elsewhere(list(dict.fromkeys(topics)), trace)


def _refusal(topic: TopicDescription | None, partition: int) -> int:
    """Why there is no such partition; none if it is the home broker's to say."""
    if topic is None:
        return ErrorCode.NONE
    if topic.error_code in _UNKNOWN:
        return topic.error_code
    if topic.error_code:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    in_range = 0 <= partition < topic.partitions
    return ErrorCode.NONE if in_range else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _there(part: Part, topic: TopicDescription | None) -> Part:
    """The same, with what the home broker must know of a topic that is not its own."""
    if topic is None:
        return part
    return replace(part, topic=topic.topic, topic_id=topic.topic_id, elsewhere=True)


def _merged(refusals: Sequence[int], answers: Iterable[int]) -> list[int]:
    """One error for each: the refusal, or else the next answer."""
    others = iter(answers)
    return [refusal or next(others) for refusal in refusals]
