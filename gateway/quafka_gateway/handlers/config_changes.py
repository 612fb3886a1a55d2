"""Config changes, as AlterConfigs and IncrementalAlterConfigs share them.

All changes of a resource are made, or none. Clients can change the configs of topics and of groups,
and those of the broker that topics inherit. Other settings of gateway and broker cannot change at
run time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DENIED,
    may_on_all_orgs,
)
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.admin import AlterBrokerConfigs, AlterTopicConfigs
from quafka_mesh_ops.ops.group_configs import AlterGroupConfigs
from quafka_proto.config_kinds import ConfigOperation, ResourceType
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsResource,
)
from quafka_telemetry.tracing import TraceContext

_OPERATIONS = set(ConfigOperation)
_MOST_CHANGES = 1_000
"""Changes of one resource; more than all configs that exist."""
_CHANGES_PER_SLICE = 500
_OF_CLUSTER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS)


async def apply(
    resources: Sequence[IncrementalAlterConfigsResource],
    context: RequestContext,
    trace: TraceContext | None,
    *,
    replace: bool,
    validate_only: bool,
) -> list[AlterConfigsResourceResponse]:
    """Apply the changes of each resource, durably."""
    slices = Slices(_CHANGES_PER_SLICE)
    times: Counter[tuple[int, str]] = Counter()
    for resource in resources:
        times[resource.resource_type, resource.resource_name] += 1
        await slices.done()
    done: list[AlterConfigsResourceResponse] = []
    for resource in resources:
        await slices.done(1 + len(resource.configs))
        code, message = _denial(resource, times, context, replace=replace)
        if not code:
            code, message = _refusal(resource, context.node_id)
        if not code and resource.resource_type == ResourceType.TOPIC:
            op = AlterTopicConfigs(resource.resource_name, resource.configs, replace, validate_only)
            answer = await context.tenant.admin.alter_topic_configs(op, trace)
            code, message = answer.error_code, answer.error_message
        elif not code and resource.resource_type == ResourceType.BROKER:
            own = bool(resource.resource_name)
            of_broker = AlterBrokerConfigs(resource.configs, own, replace, validate_only)
            altered = await context.tenant.admin.alter_broker_configs(of_broker, trace)
            code, message = altered.error_code, altered.error_message
        elif not code and resource.resource_type == ResourceType.GROUP:
            of_group = AlterGroupConfigs(
                resource.resource_name, resource.configs, replace, validate_only
            )
            made = await context.tenant.admin.alter_group_configs(of_group, trace)
            context.tenant.shares.forget_configs(resource.resource_name)
            code, message = made.error_code, made.error_message
        done.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message or None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return done


def _denial(
    resource: IncrementalAlterConfigsResource,
    times: Counter[tuple[int, str]],
    context: RequestContext,
    *,
    replace: bool,
) -> tuple[int, str]:
    """Why the client may not change the resource, or may not know more of it."""
    kind, name = resource.resource_type, resource.resource_name
    if times[kind, name] > 1:
        return ErrorCode.INVALID_REQUEST, "the request names this resource twice"
    if kind == ResourceType.TOPIC and not context.may(ALTER_TOPIC_CONFIGS, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED
    if kind == ResourceType.GROUP and not context.may(ALTER_GROUP_CONFIGS, name):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, DENIED
    if replace and kind == ResourceType.BROKER_LOGGER:
        return ErrorCode.NONE, ""  # no client may replace all levels, as in Kafka
    if kind in _OF_CLUSTER and not may_on_all_orgs(ALTER_CLUSTER_CONFIGS, context):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED
    return ErrorCode.NONE, ""


def _refusal(resource: IncrementalAlterConfigsResource, node: int) -> tuple[int, str]:
    kind, name = resource.resource_type, resource.resource_name
    if len(resource.configs) > _MOST_CHANGES:
        return ErrorCode.INVALID_REQUEST, f"more than {_MOST_CHANGES} changes"
    names = ", ".join(change.name for change in resource.configs)
    if kind == ResourceType.BROKER:
        if name not in ("", str(node)):
            return ErrorCode.INVALID_REQUEST, f"the only broker is {node}"
        return _fault(resource.configs)
    if kind == ResourceType.BROKER_LOGGER:
        return ErrorCode.INVALID_CONFIG, (
            f"{names}: log levels are set by log.level and cannot be changed at run time"
        )
    if kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS) and not name:
        return ErrorCode.INVALID_REQUEST, f"a {ResourceType(kind).name} needs a name"
    if kind == ResourceType.CLIENT_METRICS:
        if all(change.config_operation == ConfigOperation.DELETE for change in resource.configs):
            return ErrorCode.NONE, ""  # nothing is set, so nothing has to be deleted
        return ErrorCode.INVALID_CONFIG, f"{names}: client metrics have no configs here"
    if kind not in (ResourceType.TOPIC, ResourceType.GROUP):
        return ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configs here"
    return _fault(resource.configs)


def _fault(changes: list[IncrementalAlterableConfig]) -> tuple[int, str]:
    """The error of changes that are wrong for every resource; NONE and "" for good ones."""
    twice = [name for name, times in Counter(c.name for c in changes).items() if times > 1]
    if twice:
        return ErrorCode.INVALID_REQUEST, f"given twice: {', '.join(twice)}"
    for change in changes:
        if change.config_operation not in _OPERATIONS:
            message = f"{change.name}: operation {change.config_operation} is not known"
            return ErrorCode.INVALID_REQUEST, message
        if change.value is None and change.config_operation != ConfigOperation.DELETE:
            return ErrorCode.INVALID_REQUEST, f"{change.name} cannot be set to null"
    return ErrorCode.NONE, ""
