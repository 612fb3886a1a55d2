"""ListConfigResources (key 74), versions 0-1: the resources whose configs can be described.

Version 0 lists client metrics alone, and none exist. Of groups, those that set configs are listed.
"""

from __future__ import annotations

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_CLUSTER_CONFIGS, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.group_configs import ListGroupConfigs
from quafka_mesh_ops.ops.topics import DescribeTopics
from quafka_proto.config_kinds import ResourceType
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.configs import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from quafka_telemetry.tracing import TraceContext


async def handle(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources of the requested kinds; of all kinds if none is named."""
    if not may_on_cluster(DESCRIBE_CLUSTER_CONFIGS, context):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = request.resource_types or list(ResourceType)
    if context.version == 0:
        wanted = [ResourceType.CLIENT_METRICS]
    if not set(wanted) <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    with context.child("gateway.kafka.list_config_resources") as span:
        found: list[ConfigResource] = []
        for kind in dict.fromkeys(wanted):
            try:
                names = await _names(kind, context, span.context)
            except BrokerUnavailableError as e:
                return ListConfigResourcesResponse(error_code=e.code)
            found += await listed(
                ConfigResource(resource_name=name, resource_type=kind) for name in names
            )
    return ListConfigResourcesResponse(config_resources=found)


API = Api(
    key=74,
    versions=Versions(0, 1),
    request=ListConfigResourcesRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER_CONFIGS,),
    order=Order(reads=SeenState.TOPICS | SeenState.CONFIGS | SeenState.GROUPS),
)


async def _names(kind: int, context: RequestContext, trace: TraceContext | None) -> list[str]:
    if kind == ResourceType.TOPIC:
        answer = await context.tenant.topics.describe(DescribeTopics(), trace)
        return await listed(topic.topic for topic in answer.topics)
    if kind == ResourceType.GROUP:
        answers = await context.tenant.groups.call_all(ListGroupConfigs(), trace)
        return await listed(name for answer in answers for name in answer.groups)
    return (
        [str(context.node_id)] if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) else []
    )
