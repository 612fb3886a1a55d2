"""Names the topics and partitions of a request in its span. Requests that are not sampled skip it.

A request may name a topic by its id; then the span has the name as well if the gateway knows it.
"""

from __future__ import annotations

from collections.abc import Iterable

from quafka_gateway.context import RequestContext
from quafka_gateway.fetch.share_sessions import Place
from quafka_telemetry.destinations import (
    NamedPartition,
    OffsetRange,
    describe_destinations,
    topic_id_of,
)
from quafka_telemetry.tracing import Span


def describe_partitions(
    span: Span,
    partitions: Iterable[NamedPartition],
    context: RequestContext,
    offsets: Iterable[OffsetRange | None] = (),
) -> None:
    """Name the partitions of an op, whose topics are named by name or, if that is empty, by id.

    `offsets`: see `describe_destinations`.
    """
    if span.context is None:
        return
    known = context.tenant.names.known
    with_ids = ((part, topic_id_of(part)) for part in partitions)
    describe_destinations(
        span,
        ((p.topic or known(topic_id) or "", topic_id, p.partition) for p, topic_id in with_ids),
        offsets,
    )


def describe_places(
    span: Span,
    places: Iterable[Place],
    context: RequestContext,
    offsets: Iterable[OffsetRange | None] = (),
) -> None:
    """Name partitions of topics by id. `offsets`: see `describe_destinations`."""
    if span.context is None:
        return
    known = context.tenant.names.known
    describe_destinations(
        span, ((known(topic_id) or "", topic_id, number) for topic_id, number in places), offsets
    )
