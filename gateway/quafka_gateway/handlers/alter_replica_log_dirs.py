"""AlterReplicaLogDirs (key 34), versions 0-2: no partition moves, as a broker has one log folder.

To move a partition to the folder that it is in succeeds, as in Kafka; another folder is
LOG_DIR_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import repeat

from quafka_gateway.cluster.admin import partitions_of
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, may_on_cluster
from quafka_gateway.handlers.items import topic_results
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices, listed
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Compare the folder of each partition with the requested one."""
    if not may_on_cluster(ALTER_CLUSTER, context):
        denied = repeat(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return await in_slices(_response(request, denied))
    asked = await in_slices(
        partitions_of(
            (topic.name, topic.partitions) for each in request.dirs for topic in each.topics
        )
    )
    with context.child("gateway.kafka.alter_replica_log_dirs") as span:
        found = await context.tenant.admin.log_dirs(asked, span.context)
    place = dict(
        await listed(
            ((topic.topic, partition), folder.name)
            for folder in found
            for topic in folder.found.topics
            for partition in topic.partitions
        )
    )
    is_away = any(folder.found.error_code for folder in found)
    missing = ErrorCode.KAFKA_STORAGE_ERROR if is_away else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def error(path: str, topic: str, partition: int) -> ErrorCode:
        if (topic, partition) not in place:
            return missing
        return ErrorCode.NONE if place[topic, partition] == path else ErrorCode.LOG_DIR_NOT_FOUND

    codes = (
        error(each.path, topic.name, index)
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    )
    return await in_slices(_response(request, codes))


API = Api(
    key=34,
    versions=Versions(0, 2),
    request=AlterReplicaLogDirsRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(reads=SeenState.TOPICS | SeenState.RECORDS, writes=SeenState.REPLICAS),
    audited=True,
)


def _response(
    request: AlterReplicaLogDirsRequest, codes: Iterable[ErrorCode]
) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    results = yield from topic_results(
        ((topic.name, topic.partitions) for each in request.dirs for topic in each.topics),
        codes,
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirTopicResult,
    )
    return AlterReplicaLogDirsResponse(results=results)
