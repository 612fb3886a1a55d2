"""AlterConfigs (key 33), versions 0-2: replaces all configs that a resource sets itself."""

from __future__ import annotations

from collections.abc import Generator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers import config_changes
from quafka_gateway.handlers.authorized import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
)
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import in_slices
from quafka_proto.config_kinds import ConfigOperation
from quafka_proto.message import Versions
from quafka_proto.schema.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsResource,
)


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the configs of each resource, durably."""
    resources = await in_slices(_resources(request))
    with context.child("gateway.kafka.alter_configs") as span:
        done = await config_changes.apply(
            resources, context, span.context, replace=True, validate_only=request.validate_only
        )
    return AlterConfigsResponse(responses=done)


API = Api(
    key=33,
    versions=Versions(0, 2),
    request=AlterConfigsRequest,
    handle=handle,
    access=(ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS),
    order=Order(reads=SeenState.TOPICS, writes=SeenState.CONFIGS),
    audited=True,
)


def _resources(
    request: AlterConfigsRequest,
) -> Generator[None, None, list[IncrementalAlterConfigsResource]]:
    found: list[IncrementalAlterConfigsResource] = []
    for each in request.resources:
        changes: list[IncrementalAlterableConfig] = []
        found.append(
            IncrementalAlterConfigsResource(each.resource_type, each.resource_name, changes)
        )
        yield
        for config in each.configs:
            change = IncrementalAlterableConfig(config.name, ConfigOperation.SET, config.value)
            changes.append(change)
            yield
    return found
