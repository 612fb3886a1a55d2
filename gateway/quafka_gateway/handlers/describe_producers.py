"""DescribeProducers (key 61), version 0: the producers of partitions, with open transactions."""

from __future__ import annotations

from quafka_gateway.cluster.admin import partitions_of
from quafka_gateway.cluster.cluster import RouteBy
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import READ_TOPIC
from quafka_gateway.handlers.items import Items, topic_results
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices
from quafka_mesh_ops.ops.admin import DescribeProducersOps, PartitionOp, PartitionProducers
from quafka_proto.message import Versions
from quafka_proto.schema.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_NO_COORDINATOR, _COORDINATOR_EPOCH = -1, 0  # the coordinator never moves


_Found = tuple[PartitionProducers, str]
"""What is known of a partition, and why the client may not know more."""
_PARTITIONS = Items[PartitionOp, _Found](
    span="gateway.kafka.describe_producers",
    right=READ_TOPIC,
    route=RouteBy.TOPIC,
    failed=lambda _op, code, message: (PartitionProducers([], code), message),
)


async def handle(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Describe the producers of each partition, once even if it is named twice."""
    topics = await in_slices(
        partitions_of((topic.name, topic.partition_indexes) for topic in request.topics)
    )
    answers = await _PARTITIONS.answers(
        (PartitionOp(each.topic, index) for each in topics for index in each.partitions),
        DescribeProducersOps,
        lambda resp: [(each, "") for each in resp.partitions],
        context,
    )
    results = topic_results(
        ((each.topic, each.partitions) for each in topics), answers, _partition, TopicResponse
    )
    return DescribeProducersResponse(topics=await in_slices(results))


API = Api(
    key=61,
    versions=Versions(0, 0),
    request=DescribeProducersRequest,
    handle=handle,
    items=_PARTITIONS,
    access=(READ_TOPIC,),
    order=Order(
        reads=SeenState.PRODUCERS | SeenState.TRANSACTIONS | SeenState.RECORDS | SeenState.TOPICS
    ),
    response_length=ResponseLength.LONG,
)


def _partition(index: int, known: _Found) -> PartitionResponse:
    found, message = known
    return PartitionResponse(
        partition_index=index,
        error_code=found.error_code,
        error_message=message or None,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp,
                coordinator_epoch=(
                    _NO_COORDINATOR if each.transaction_start < 0 else _COORDINATOR_EPOCH
                ),
                current_txn_start_offset=each.transaction_start,
            )
            for each in found.producers
        ],
    )
