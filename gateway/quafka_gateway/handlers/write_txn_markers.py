"""WriteTxnMarkers (key 27), versions 1-2: an administrator ends a hanging transaction (KIP-664).

Kafka's coordinators send the request to brokers, too. Here a transaction and its markers are
written as one, so only administrators send it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Sequence
from itertools import repeat

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, CLUSTER_ACTION, may_on_cluster
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.transactions import WriteMarkers
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from quafka_telemetry.tracing import TraceContext

_AT_A_TIME = 32


async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    """End what each producer has open in its partitions, durably."""
    if not (may_on_cluster(ALTER_CLUSTER, context) or may_on_cluster(CLUSTER_ACTION, context)):
        return WriteTxnMarkersResponse(markers=await in_slices(_refused(request.markers)))
    found: list[WritableTxnMarkerResult] = []
    with context.child("gateway.kafka.write_txn_markers") as span:
        for at in range(0, len(request.markers), _AT_A_TIME):
            some = request.markers[at : at + _AT_A_TIME]
            found += await asyncio.gather(*(_write(each, context, span.context) for each in some))
    return WriteTxnMarkersResponse(markers=found)


API = Api(
    key=27,
    versions=Versions(1, 2),
    request=WriteTxnMarkersRequest,
    handle=handle,
    access=(ALTER_CLUSTER, CLUSTER_ACTION),
    order=Order(
        reads=SeenState.TOPICS,
        writes=SeenState.TRANSACTIONS | SeenState.PRODUCERS | SeenState.RECORDS | SeenState.OFFSETS,
    ),
    response_length=ResponseLength.BY_REQUEST,
    audited=True,
)


def _refused(
    markers: Sequence[WritableTxnMarker],
) -> Generator[None, None, list[WritableTxnMarkerResult]]:
    codes = repeat(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    found: list[WritableTxnMarkerResult] = []
    for marker in markers:
        topics = yield from _results(marker.topics, codes)
        found.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        yield
    return found


async def _write(
    marker: WritableTxnMarker, context: RequestContext, trace: TraceContext | None
) -> WritableTxnMarkerResult:
    op = WriteMarkers(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        await listed(
            PartitionsByTopic(each.name, each.partition_indexes) for each in marker.topics
        ),
        marker.coordinator_epoch,
    )
    codes = await context.tenant.transactions.write_markers(op, trace)
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id, topics=await in_slices(_results(marker.topics, codes))
    )


def _results(
    topics: Sequence[WritableTxnMarkerTopic], codes: Iterable[int]
) -> Generator[None, None, list[WritableTxnMarkerTopicResult]]:
    return topic_results(
        ((topic.name, topic.partition_indexes) for topic in topics),
        codes,
        WritableTxnMarkerPartitionResult,
        WritableTxnMarkerTopicResult,
    )
