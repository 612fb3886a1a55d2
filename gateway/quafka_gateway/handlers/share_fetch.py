"""ShareFetch (key 78), versions 1-2: acquires records for a member of a share group (KIP-932).

Long poll. The brokers of the partitions give the member a lock on records that no other member has,
and the gateway reads the batches that hold them, as for any fetch. A batch may hold records that
the member did not acquire: the response names those that it did, and clients skip the others. What
cannot be read, and what the client may no longer read when the response is made, is given back at
once.

A request may carry acknowledgements of earlier records, which need not wait for new ones. The
partitions are those of the member's share session. The final request of a session (epoch -1)
fetches nothing, and gives back what the member has not acknowledged. When the session's connection
ends, so does the session.

`max_records` is a soft limit in the batch-optimised mode: whole batches are acquired. The
record-limit mode of version 2 (KIP-1206) cuts the last batch. `batch_size` bounds the ranges of
acquired records in the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.fetch.file_slice import end_offset
from quafka_gateway.fetch.share_sessions import FINAL, INITIAL, Key, Place, ShareSession
from quafka_gateway.handlers.authorized import READ_GROUP, READ_TOPIC, rule_changes
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.handlers.share_records import (
    Named,
    acknowledge,
    by_topic,
    describe_session,
    end_session,
    member_of,
    named,
    refused_topics,
)
from quafka_gateway.quotas.kinds import QuotaKind
from quafka_loop import clock
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.records import FetchOp, FetchOps
from quafka_mesh_ops.ops.shares import (
    AcquireRecords,
    BatchRange,
    ReleasePartition,
    ReleaseRecords,
    ShareConfigs,
    SharePlace,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.share_fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from quafka_telemetry import semconv
from quafka_telemetry.destinations import OffsetRange
from quafka_telemetry.tracing import Span, TraceContext, fail_with

_MAX_WAIT_MS = 60_000
_MAX_BYTES = 57_671_680  # Kafka's fetch.max.bytes, as for Fetch
_RECORD_LIMIT = 1
_READS = 4
"""Times that missing batches are asked for: memory that runs short makes answers shorter."""


@dataclass(slots=True)
class _Fetched:
    """What a partition has for the member."""

    error: int = 0
    acquired: list[AcquiredRecords] = field(default_factory=list[AcquiredRecords])
    records: list[Buffer] = field(default_factory=list[Buffer])


async def handle(request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    """Acknowledge and acquire records."""
    changed = rule_changes(context)
    key = member_of(request.group_id, request.member_id, context)
    if isinstance(key, ErrorCode):
        return ShareFetchResponse(error_code=key)
    wanted = await in_slices(named(request.topics))
    with context.child(semconv.GATEWAY_SHARE_FETCH) as span:
        try:
            configs = await context.tenant.shares.configs(key[0], span.context)
            new = await _new(request, key, wanted, context, span.context)
        except BrokerUnavailableError as e:
            return ShareFetchResponse(error_code=e.code)
        session = await _begin(request, key, wanted, new, context)
        if isinstance(session, ErrorCode):
            describe_session(span, session, wanted, context)
            return ShareFetchResponse(error_code=session)
        found: dict[Place, _Fetched] = {}
        try:
            codes, _ = await asyncio.gather(
                acknowledge(
                    wanted.batches, request.is_renew_ack, configs, session, context, span.context
                ),
                _fetch(request, session, configs, found, context, span),
            )
            await end_session(session, request.share_session_epoch, context, span.context)
            if span.context is not None:
                describe_session(span, session, wanted, context, _acquired(found))
            while changed():
                await _withdraw(session, found, context, span.context)
            if not context.may(READ_GROUP, key[0]):
                return ShareFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            response = await _response(request, session, codes, found)
        except asyncio.CancelledError:  # the client is gone, its session may be on another one
            if any(each.acquired for each in found.values()):
                context.tenant.shares.release_later(_release(session, found))
            raise
        fail_with(span, (*codes.values(), *(each.error for each in found.values())), "ShareFetch")
    return response


API = Api(
    key=78,
    versions=Versions(1, 2),
    request=ShareFetchRequest,
    handle=handle,
    access=(READ_GROUP, READ_TOPIC),
    order=Order(
        reads=SeenState.RECORDS | SeenState.TOPICS | SeenState.CONFIGS,
        writes=SeenState.SHARES,
        long_poll=True,
    ),
)


def _acquired(found: Mapping[Place, _Fetched]) -> dict[Place, OffsetRange]:
    """The first and last offsets that were acquired in each partition."""
    return {
        place: (each.acquired[0].first_offset, each.acquired[-1].last_offset)
        for place, each in found.items()
        if each.acquired
    }


async def _new(
    request: ShareFetchRequest,
    key: Key,
    wanted: Named,
    context: RequestContext,
    trace: TraceContext | None,
) -> Collection[Place]:
    """The partitions that the session lacks and that are new to the group.

    Raises:
        BrokerUnavailableError: the group's broker does not answer.
    """
    sessions = context.tenant.share_sessions
    missing = await listed(sessions.missing(key, request.share_session_epoch, wanted.places))
    return await context.tenant.shares.new_to(key[0], missing, trace)


async def _begin(
    request: ShareFetchRequest,
    key: Key,
    wanted: Named,
    new: Collection[Place],
    context: RequestContext,
) -> ShareSession | ErrorCode:
    """The session, or the error of the whole request."""
    epoch = request.share_session_epoch
    if epoch == INITIAL and wanted.batches:
        return ErrorCode.INVALID_REQUEST
    if request.is_renew_ack and not _fetches_nothing(request):
        return ErrorCode.INVALID_REQUEST
    forgotten = await listed(
        (topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    )
    sessions = context.tenant.share_sessions
    return sessions.begin(key, epoch, context.lane, wanted.places, forgotten, new, fetches=True)


def _fetches_nothing(request: ShareFetchRequest) -> bool:
    """Whether only locks are renewed: then the request must not wait."""
    limits = request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records
    return not any(limits)


# --- records --------------------------------------------------------------------------------


async def _fetch(
    request: ShareFetchRequest,
    session: ShareSession,
    configs: ShareConfigs,
    found: dict[Place, _Fetched],
    context: RequestContext,
    span: Span,
) -> None:
    """Acquire records and read them; `found` has at any time what the member has acquired."""
    takes_nothing = request.max_records <= 0 or request.max_bytes <= 0
    if request.share_session_epoch == FINAL or request.is_renew_ack or takes_nothing:
        return
    places = await listed(session.partitions)
    refused = await refused_topics(places, context, span.context)
    if refused:
        wrong = await listed(place for place in places if place[0] in refused)
        found.update((place, _Fetched(refused[place[0]])) for place in wrong)
        places = await listed(place for place in places if place[0] not in refused)
    if not places:
        return
    op = await _op(request, session, places, configs, context)
    answers = await context.tenant.shares.acquire(op, span.context)
    batches: list[tuple[Place, BatchRange]] = []
    for place, (answer, lock_ms) in zip(places, answers, strict=True):
        if lock_ms >= 0:
            session.lock_ms = lock_ms
        if answer.error_code or answer.acquired:
            error = 0 if answer.acquired else answer.error_code  # with one, clients read nothing
            found[place] = _Fetched(error, list(answer.acquired))
        batches += ((place, batch) for batch in answer.batches)
    session.read_last(place for place, each in found.items() if each.acquired)
    if batches:
        await _read(session, found, batches, context, span.context)
        _charge(found.values(), context)


async def _op(
    request: ShareFetchRequest,
    session: ShareSession,
    places: list[Place],
    configs: ShareConfigs,
    context: RequestContext,
) -> AcquireRecords:
    wait_ms = max(0, min(request.max_wait_ms, _MAX_WAIT_MS) - round(context.waited * 1000))
    most = max(0, min(request.max_bytes, _MAX_BYTES))
    return AcquireRecords(
        *session.key,
        await listed(
            SharePlace("", number, topic_id, session.partitions.get((topic_id, number), False))
            for topic_id, number in places
        ),
        max_wait_ms=wait_ms,
        min_bytes=max(0, request.min_bytes),
        max_bytes=context.session.tenant.response_memory.allowance(most),
        max_records=request.max_records,
        exact=request.share_acquire_mode == _RECORD_LIMIT,
        configs=configs,
        session=session.id,
    )


async def _read(
    session: ShareSession,
    found: Mapping[Place, _Fetched],
    missing: list[tuple[Place, BatchRange]],
    context: RequestContext,
    trace: TraceContext | None,
) -> None:
    """Read the batches of acquired records. Records that cannot be read are given back."""
    errors: dict[Place, int] = {}
    for _ in range(_READS):
        if not missing:
            return
        missing = await _read_some(found, missing, errors, context, trace)
    parts: list[ReleasePartition] = []
    for place, batch in missing:
        its = found[place]
        its.acquired = list(_without(its.acquired, batch))
        if not its.acquired:
            its.error = errors.get(place, 0)
        parts.append(ReleasePartition("", place[1], batch.first, batch.last, place[0]))
    if parts:
        op = ReleaseRecords(*session.key, parts, session.id)
        await context.tenant.shares.release(op, trace)


async def _read_some(
    found: Mapping[Place, _Fetched],
    missing: list[tuple[Place, BatchRange]],
    errors: dict[Place, int],
    context: RequestContext,
    trace: TraceContext | None,
) -> list[tuple[Place, BatchRange]]:
    """Read; returns what is still missing."""
    op = FetchOps(
        [FetchOp("", place[1], batch.first, batch.size, place[0]) for place, batch in missing],
        max_bytes=sum(batch.size for _, batch in missing),
    )
    answers = await context.tenant.reader.fetch(op, trace)
    left: list[tuple[Place, BatchRange]] = []
    for (place, batch), answer in zip(missing, answers, strict=True):
        if answer.error_code:
            errors[place] = answer.error_code
        found[place].records += answer.records
        end = end_offset(answer.records[-1]) if answer.records else batch.first
        if end <= batch.last:
            size = max(1, batch.size - sum(map(len, answer.records)))
            left.append((place, replace(batch, first=end, size=size)))
    return left


async def _withdraw(
    session: ShareSession,
    found: dict[Place, _Fetched],
    context: RequestContext,
    trace: TraceContext | None,
) -> None:
    """Give back what the client may no longer read, which gets the error instead."""
    group = 0 if context.may(READ_GROUP, session.key[0]) else ErrorCode.GROUP_AUTHORIZATION_FAILED
    refused = await refused_topics(found, context, trace)
    gone: dict[Place, _Fetched] = {}
    for place, its in found.items():
        code = group or refused.get(place[0], 0)
        if code and its.acquired:
            gone[place] = its
    if gone:
        await context.tenant.shares.release(_release(session, gone), trace)
        found.update((place, _Fetched(group or refused[place[0]])) for place in gone)


def _release(session: ShareSession, found: Mapping[Place, _Fetched]) -> ReleaseRecords:
    """The op that gives back acquired records, which the member has not seen."""
    parts = [
        ReleasePartition("", place[1], each.first_offset, each.last_offset, place[0])
        for place, its in found.items()
        for each in its.acquired
    ]
    return ReleaseRecords(*session.key, parts, session.id)


def _without(acquired: Iterable[AcquiredRecords], batch: BatchRange) -> Iterator[AcquiredRecords]:
    """The acquired records that are not in a batch."""
    for each in acquired:
        first, last = each.first_offset, each.last_offset
        if first < batch.first:
            yield AcquiredRecords(first, min(last, batch.first - 1), each.delivery_count)
        if last > batch.last:
            yield AcquiredRecords(max(first, batch.last + 1), last, each.delivery_count)


def _charge(found: Iterable[_Fetched], context: RequestContext) -> None:
    """Charge the records to the client's quota: it waits after this response."""
    quotas = context.quotas
    quota = None if quotas is None else quotas.fetch
    if quota is not None:
        size = sum(len(batch) for each in found for batch in each.records)
        seconds = quota.charge(size, clock.monotonic())
        if seconds:
            context.throttle(QuotaKind.FETCH, seconds)


# --- the response ---------------------------------------------------------------------------


async def _response(
    request: ShareFetchRequest,
    session: ShareSession,
    codes: Mapping[Place, int],
    found: Mapping[Place, _Fetched],
) -> ShareFetchResponse:
    places = await by_topic(chain(codes, (place for place in found if place not in codes)))
    results = topic_results(
        places.items(),
        ((topic_id, number) for topic_id, numbers in places.items() for number in numbers),
        lambda number, place: _partition(
            number, codes.get(place, 0), found.get(place) or _Fetched(), request.batch_size
        ),
        ShareFetchableTopicResponse,
    )
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=session.lock_ms, responses=await in_slices(results)
    )


def _partition(number: int, code: int, found: _Fetched, batch_size: int) -> ShareFetchPartitionData:
    return ShareFetchPartitionData(
        partition_index=number,
        error_code=found.error,
        acknowledge_error_code=code,
        records=found.records,
        acquired_records=[part for each in found.acquired for part in _in_ranges(each, batch_size)],
    )


def _in_ranges(acquired: AcquiredRecords, size: int) -> Iterator[AcquiredRecords]:
    """Acquired records in ranges of up to `size` records; 0 or less: as they are."""
    first, last = acquired.first_offset, acquired.last_offset
    if size <= 0 or last - first < size:
        yield acquired
        return
    for start in range(first, last + 1, size):
        yield AcquiredRecords(start, min(start + size - 1, last), acquired.delivery_count)
