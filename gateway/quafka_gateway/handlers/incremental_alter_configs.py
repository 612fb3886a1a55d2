"""IncrementalAlterConfigs (key 44), versions 0-1: changes single configs of resources."""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import config_changes
from quafka_gateway.handlers.authorized import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
)
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_proto.message import Versions
from quafka_proto.schema.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change the configs of each resource, durably."""
    with context.child("gateway.kafka.incremental_alter_configs") as span:
        done = await config_changes.apply(
            request.resources,
            context,
            span.context,
            replace=False,
            validate_only=request.validate_only,
        )  # fmt: skip
    return IncrementalAlterConfigsResponse(responses=done)


API = Api(
    key=44,
    versions=Versions(0, 1),
    request=IncrementalAlterConfigsRequest,
    handle=handle,
    access=(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS),
    order=Order(reads=SeenState.TOPICS, writes=SeenState.CONFIGS),
    audited=True,
)
