"""Single calls of administrators over a RawClient."""

from __future__ import annotations

from quafka_proto.config_kinds import ConfigOperation, ConfigSource, ResourceType
from quafka_proto.schema.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from quafka_proto.schema.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tests.support.raw_client import RawClient

TOPIC = ResourceType.TOPIC


def resource(kind: int, name: str, *keys: str) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[*keys] or None
    )


def describe_configs(
    client: RawClient, version: int, *resources: DescribeConfigsResource
) -> list[DescribeConfigsResult]:
    """All that there is to be told in this version."""
    request = DescribeConfigsRequest(resources=[*resources])
    if version >= 1:
        request.include_synonyms = True
    if version >= 3:
        request.include_documentation = True
    answer = client.call(request, DescribeConfigsResponse, version)
    asked = [(r.resource_type, r.resource_name) for r in resources]
    assert [(r.resource_type, r.resource_name) for r in answer.results] == asked
    return answer.results


def own_configs(client: RawClient, topic: str) -> dict[str, str | None]:
    """What a topic sets itself."""
    (found,) = describe_configs(client, 4, resource(TOPIC, topic))
    assert found.error_code == 0
    dynamic = ConfigSource.DYNAMIC_TOPIC
    return {c.name: c.value for c in found.configs if c.config_source == dynamic}


def set_config(
    client: RawClient, resource_name: str, name: str, value: str, kind: int = TOPIC
) -> int:
    """Set one config of a topic, or of a resource of another kind; the error code."""
    change = IncrementalAlterableConfig(
        name=name, config_operation=ConfigOperation.SET, value=value
    )
    of = IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=resource_name, configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[of])
    (done,) = client.call(request, IncrementalAlterConfigsResponse, 1).responses
    return done.error_code


def grow(client: RawClient, topic: str, count: int) -> int:
    """Give a topic so many partitions; the error code."""
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000)
    return client.call(request, CreatePartitionsResponse, 3).results[0].error_code
