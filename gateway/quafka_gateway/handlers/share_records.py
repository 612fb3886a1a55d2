"""What ShareFetch and ShareAcknowledge have in common: members, topics, acknowledgements."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from quafka_gateway.context import RequestContext
from quafka_gateway.fetch.share_sessions import FINAL, Key, Place, ShareSession
from quafka_gateway.handlers.authorized import READ_GROUP, READ_TOPIC, refusals
from quafka_gateway.handlers.destinations import describe_places
from quafka_loop.slices import Slices, in_slices
from quafka_mesh_ops.ops.shares import (
    MOST_ACQUIRED,
    AcknowledgedBatch,
    AcknowledgeRecords,
    PartitionAcknowledgements,
    ReleaseRecords,
    ShareConfigs,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.share_fetch import (
    AcknowledgementBatch,
    AcknowledgeTopic,
    ShareFetchTopic,
)
from quafka_telemetry.destinations import OffsetRange
from quafka_telemetry.tracing import Span, TraceContext

GAP, ACCEPT, RENEW = 0, 1, 4
_MOST_MEMBER_ID = 255
_TOPICS_PER_SLICE = 200

Topics = Iterable[ShareFetchTopic] | Iterable[AcknowledgeTopic]
Batches = dict[Place, list[AcknowledgementBatch]]


def member_of(group: str | None, member: str | None, context: RequestContext) -> Key | ErrorCode:
    """The group and the member of a request, or the error of the whole request."""
    if group == "":
        return ErrorCode.INVALID_GROUP_ID
    if group is None or not member or len(member) > _MOST_MEMBER_ID:
        return ErrorCode.INVALID_REQUEST
    if not context.may(READ_GROUP, group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return group, member


@dataclass(slots=True)
class Named:
    """The partitions that a request names, and its acknowledgements in them."""

    places: list[Place] = field(default_factory=list[Place])
    batches: Batches = field(default_factory=dict[Place, list[AcknowledgementBatch]])


def named(topics: Topics) -> Generator[None, None, Named]:
    """The partitions of a request, in slices."""
    found = Named()
    for topic in topics:
        for part in topic.partitions:
            place = topic.topic_id, part.partition_index
            found.places.append(place)
            if part.acknowledgement_batches:
                found.batches.setdefault(place, []).extend(part.acknowledgement_batches)
            yield
        yield
    return found


async def refused_topics(
    places: Iterable[Place], context: RequestContext, trace: TraceContext | None
) -> Mapping[bytes, int]:
    """The error codes of the topics that the client may not read."""
    topics = dict.fromkeys(("", topic_id) for topic_id, _ in places)
    found = await refusals(topics, READ_TOPIC, context, trace)
    return {topic_id: code for (_, topic_id), code in found.items()}


def describe_session(
    span: Span,
    session: ShareSession | ErrorCode,
    wanted: Named,
    context: RequestContext,
    acquired: Mapping[Place, OffsetRange] | None = None,
) -> None:
    """Name the partitions of a session, and those of which a request has acknowledgements only.

    A member's last request acknowledges records of partitions that the session may have lost.
    `acquired`: the first and last offsets that the member has now.
    """
    its = () if isinstance(session, ErrorCode) else session.partitions
    others = (place for place in wanted.places if place not in its)
    offsets = map(acquired.get, its) if acquired else ()
    describe_places(span, chain(its, others), context, offsets)


async def acknowledge(
    batches: Batches,
    renews: bool,
    configs: ShareConfigs,
    session: ShareSession,
    context: RequestContext,
    trace: TraceContext | None,
) -> dict[Place, int]:
    """Send the acknowledgements of a request; the error code of each partition.

    `renews`: whether the request may renew locks.
    """
    if not batches:
        return {}
    refused = await refused_topics(batches, context, trace)
    codes: dict[Place, int] = {}
    parts: dict[Place, PartitionAcknowledgements] = {}
    for place, its in batches.items():
        code = refused.get(place[0], 0)
        found = None if code else await in_slices(_checked(its, renews and configs.renews))
        if found is None:
            codes[place] = code or ErrorCode.INVALID_REQUEST
        else:
            parts[place] = PartitionAcknowledgements("", place[1], found, place[0])
    if parts:
        op = AcknowledgeRecords(*session.key, list(parts.values()), configs, session.id)
        answers = await context.tenant.shares.acknowledge(op, trace)
        for place, answer in zip(parts, answers, strict=True):
            codes[place] = answer.error_code
            if answer.lock_ms >= 0:
                session.lock_ms = answer.lock_ms
    return codes


def _checked(
    batches: list[AcknowledgementBatch], renews: bool
) -> Generator[None, None, list[AcknowledgedBatch] | None]:
    """The batches of one partition, as far as they can be checked here; None: one is not valid."""
    found: list[AcknowledgedBatch] = []
    types_left = MOST_ACQUIRED
    for batch in batches:
        yield
        types = batch.acknowledge_types
        size = batch.last_offset - batch.first_offset + 1
        types_left -= len(types)
        if batch.first_offset < 0 or size < 1 or len(types) not in (1, size) or types_left < 0:
            return None
        if min(types) < GAP or max(types) > (RENEW if renews else RENEW - 1):
            return None
        found.append(AcknowledgedBatch(batch.first_offset, batch.last_offset, bytes(types)))
    return found


async def end_session(
    session: ShareSession, epoch: int, context: RequestContext, trace: TraceContext | None
) -> None:
    """Give back what a member has left of its session, after the session's last request."""
    if epoch == FINAL:
        op = ReleaseRecords(*session.key, [], session.id)
        await context.tenant.shares.release(op, trace)


async def by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    """The partitions of each topic, in the order of the places."""
    topics: dict[bytes, list[int]] = {}
    slices = Slices(_TOPICS_PER_SLICE)
    for topic_id, partition in places:
        topics.setdefault(topic_id, []).append(partition)
        await slices.done()
    return topics
