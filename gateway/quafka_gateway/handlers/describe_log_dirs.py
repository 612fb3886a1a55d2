"""DescribeLogDirs (key 35), versions 0-5: the log folder of each broker and its partitions' sizes.

Each of several brokers has a folder of its own, named by the broker's mesh address. How full its
disk is concerns all orgs: only clients of the gateway's own see it.
"""

from __future__ import annotations

from quafka_gateway.cluster.admin import LogDir, partitions_of
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_CLUSTER, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, in_slices
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

_PARTITIONS_PER_SLICE = 2_000


async def handle(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe the folder of each broker."""
    if not may_on_cluster(DESCRIBE_CLUSTER, context):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = await in_slices(
            partitions_of((each.topic, each.partitions) for each in request.topics)
        )
    with context.child("gateway.kafka.describe_log_dirs") as span:
        found = await context.tenant.admin.log_dirs(wanted, span.context)
    results = [await _result(each) for each in found]
    if not context.sees_all_orgs:
        for result in results:
            result.total_bytes = result.usable_bytes = -1
    return DescribeLogDirsResponse(results=results)


API = Api(
    key=35,
    versions=Versions(0, 5),
    request=DescribeLogDirsRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER,),
    order=Order(reads=SeenState.RECORDS | SeenState.TOPICS | SeenState.REPLICAS),
    response_length=ResponseLength.BY_REQUEST,
)


async def _result(log_dir: LogDir) -> DescribeLogDirsResult:
    name, found = log_dir
    topics: list[DescribeLogDirsTopic] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for topic in found.topics:
        partitions = [
            DescribeLogDirsPartition(partition_index=index, partition_size=size)
            for index, size in zip(topic.partitions, topic.sizes, strict=True)
        ]
        topics.append(DescribeLogDirsTopic(name=topic.topic, partitions=partitions))
        await slices.done(1 + len(partitions))
    return DescribeLogDirsResult(
        error_code=found.error_code,
        log_dir=name,
        topics=topics,
        total_bytes=found.total_bytes,
        usable_bytes=found.usable_bytes,
    )
