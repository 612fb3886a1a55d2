"""DescribeProducers (key 61), version 0: the producers of partitions, with open transactions."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator

from quafka_gateway.cluster.admin import partitions_of
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, READ_TOPIC, denied
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, State
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.admin import PartitionOp, PartitionProducers, TopicPartitions
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_NO_COORDINATOR, _COORDINATOR_EPOCH = -1, 0  # the coordinator never moves


async def handle(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Describe the producers of each partition, once even if it is named twice."""
    topics = await in_slices(
        partitions_of((topic.name, topic.partition_indexes) for topic in request.topics)
    )
    hidden = await denied((each.topic for each in topics), READ_TOPIC, context)
    asked = await listed(
        PartitionOp(each.topic, index)
        for each in topics
        if each.topic not in hidden
        for index in each.partitions
    )
    with context.child("gateway.kafka.describe_producers") as span:
        ask = context.tenant.admin.describe_producers
        answers = iter(await ask(asked, span.context) if asked or not hidden else ())
    return await in_slices(_response(topics, hidden, answers))


API = Api(
    key=61,
    versions=Versions(0, 0),
    request=DescribeProducersRequest,
    handle=handle,
    access=(READ_TOPIC,),
    order=Order(reads=State.PRODUCERS | State.TRANSACTIONS | State.RECORDS | State.TOPICS),
    response_length=ResponseLength.LONG,
)


def _response(
    topics: list[TopicPartitions], hidden: Collection[str], answers: Iterator[PartitionProducers]
) -> Generator[None, None, DescribeProducersResponse]:
    found: list[TopicResponse] = []
    for each in topics:
        partitions: list[PartitionResponse] = []
        found.append(TopicResponse(name=each.topic, partitions=partitions))
        yield
        for index in each.partitions:
            refused = each.topic in hidden
            partitions.append(_denied(index) if refused else _partition(index, next(answers)))
            yield
    return DescribeProducersResponse(topics=found)


def _denied(index: int) -> PartitionResponse:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return PartitionResponse(partition_index=index, error_code=code, error_message=DENIED)


def _partition(index: int, found: PartitionProducers) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=found.error_code,
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
